"""The catalogue of Ray's files against the recorded trees."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from shipgen.catalog import ray
from shipgen.catalog.ray import BY_NAME, FAMILIES, NOT_LOGS, Rotates
from shipgen.policy import model

TREES = Path(__file__).parents[1] / "data" / "ray-logs"
WID = "0418a02fa76d9df3979c802e5aa306a6c089bfed071d72ad3c02e45d"


def recorded() -> Iterator[tuple[Path, str]]:
    """Every file of every tree, with its path below `logs/`."""
    for logs in sorted(TREES.glob("*/session_2*/logs")):
        for path in sorted(logs.rglob("*")):
            if path.is_file():
                yield path, str(path.relative_to(logs))


def names(families: tuple[ray.Family, ...]) -> set[str]:
    return {f.name for f in families}


def test_each_recorded_file_is_of_one_family_or_no_log() -> None:
    counts: Counter[str] = Counter()
    for path, below in recorded():
        families, why = ray.families_of(below), ray.is_not_a_log(below)
        assert len(families) == (0 if why else 1), f"{path}: {[f.name for f in families]} {why}"
        counts[families[0].name if families else "no log"] += 1
    assert sum(counts.values()) > 500
    assert not set(BY_NAME) - set(counts), "families that no tree has"


def test_globs_on_a_file_system_find_what_families_of_says() -> None:
    for logs in sorted(TREES.glob("*/session_2*/logs")):
        for family in FAMILIES:
            found = {str(p.relative_to(logs)) for glob in family.globs for p in logs.glob(glob)}
            live = {str(p.relative_to(logs)) for p in logs.rglob("*") if p.is_file()}
            live = {b for b in live if not b.startswith("old/") and ray.live_name(b) == b}
            assert found == {b for b in live if family in ray.families_of(b)}


def test_no_pattern_finds_a_file_twice_through_session_latest() -> None:
    assert (TREES / "text" / "session_latest").is_symlink()
    for tree in TREES.iterdir():
        assert not any(p.name == "session_latest" for p in tree.glob(ray.SESSION_GLOB))
    assert fnmatchcase("session_2026-12-01_05-29-04_009312_11006", ray.SESSION_GLOB)


@pytest.mark.parametrize(
    ("below", "family", "fields"),
    [
        ("raylet.out", "raylet", {}),
        (f"worker-{WID}-01000000-12518.err", "worker",
         {"worker_id": WID, "job_id": "01000000", "pid": "12518", "stream": "err"}),
        (f"old/worker-{WID}-ffffffff-7.out.3", "worker",
         {"worker_id": WID, "job_id": "ffffffff", "pid": "7", "stream": "out"}),
        (f"io_worker-{WID}-11897.out", "io_worker", {"worker_id": WID, "pid": "11897", "stream": "out"}),
        (f"python-core-worker-{WID}_12518.log.1", "core_worker", {"worker_id": WID, "pid": "12518"}),
        (f"python-core-driver-02000000{'f' * 48}_11341.log", "core_driver",
         {"worker_id": f"02000000{'f' * 48}", "job_id": "02000000", "pid": "11341"}),
        (f"python-core-spill_worker-{WID}_11791.log", "io_core", {"worker_id": WID, "pid": "11791"}),
        (f"python-core-restore_worker-{WID}_11791.log", "io_core", {"worker_id": WID, "pid": "11791"}),
        ("job-driver-my job (1).log", "job_driver", {"submission_id": "my job (1)"}),
        ("jobs/supervisor-raysubmit_DLrw.log", "job_supervisor", {"submission_id": "raysubmit_DLrw"}),
        ("dashboard_TrainHead.log.2", "dashboard", {}),
        ("dashboard_agent.log", "dashboard_agent", {}),
        ("ray_client_server_23000.err", "ray_client_server", {}),
        ("runtime_env_setup-01000000.log", "runtime_env_setup", {"job_id": "01000000"}),
        ("runtime_env_setup-ray_client_server_23000.log", "runtime_env_setup", None),
        ("serve/controller_12999.log", "serve", {"pid": "12999"}),
        ("serve/proxy_10.0.0.11.log.1", "serve", {}),
        ("serve/replica_app one_My Model ___1red0dv8.log", "serve",
         {"deployment": "app one_My Model __", "replica": "1red0dv8"}),
        (f"train/ray-train-app-worker-{WID}.log", "train", {"worker_id": WID}),
        ("ray-data/ray-data.log", "ray_data", {}),
        ("ray-data/ray-data-dataset_1_0.log", "ray_data_dataset", {}),
        ("events/event_CORE_WORKER_11446.log", "events", {"pid": "11446"}),
        ("events/event_GCS.log", "events", {}),
        ("export_events/event_EXPORT_TASK_11446.log", "export_events", {"pid": "11446"}),
        ("ray_process_exit.log", "process_exit", {}),
    ],
)
def test_a_name_says_family_and_fields(below: str, family: str, fields: dict[str, str] | None) -> None:
    found = ray.families_of(below)
    assert names(found) == {family}
    match = re.search(found[0].pattern, ray.live_name(below))
    given = {k: v for k, v in match.groupdict().items() if v is not None} if match else None
    assert given == fields


@pytest.mark.parametrize("below", [
    "debug_state.txt", "raylet.out.bak", "worker.out", "old/raylet.out", "old/job-driver-a.log", "sub/raylet.out",
    "serve/a/b.log", "ray-data/x.log", "java-worker-1.log", "raylet.out.1.gz", "session_latest",
])
def test_what_no_family_takes(below: str) -> None:
    assert ray.families_of(below) == ()


@pytest.mark.parametrize(("below", "live"), [
    ("raylet.out.12", "raylet.out"),
    ("old/worker-a.err", "worker-a.err"),
    ("old/worker-a.err.1", "worker-a.err"),
    ("serve/proxy_10.0.0.11.log.1", "serve/proxy_10.0.0.11.log"),
    ("job-driver-v1.2", "job-driver-v1.2"),
    ("job-driver-v1.2.log", "job-driver-v1.2.log"),
    ("raylet.out.1.2", "raylet.out.1.2"),
])
def test_live_name(below: str, live: str) -> None:
    assert ray.live_name(below) == live


def test_recorded_backups_are_of_families_that_ray_renames() -> None:
    backups = [below for _, below in recorded() if ray.live_name(below) != below.removeprefix("old/")]
    assert len(backups) > 20
    assert {ray.families_of(b)[0].rotates for b in backups} == {Rotates.ALWAYS, Rotates.WHEN_SET}


def test_a_copy_that_logrotate_made_is_in_no_glob() -> None:
    for family in FAMILIES:
        for glob in family.globs:
            copy = glob.replace("*", "x") + ".1"
            assert not [f.name for f in FAMILIES for g in f.globs if fnmatchcase(copy, g)]


def test_default_leaves_out_what_is_elsewhere_and_says_where() -> None:
    left_out = {f.name for f in FAMILIES if not f.default}
    assert left_out == {"job_supervisor", "ray_data_dataset", "events", "export_events"}
    assert all(bool(f.why_not_default) != f.default for f in FAMILIES)


@pytest.mark.parametrize(("chosen", "exclude", "families"), [
    (["worker"], [], {"worker"}),
    (["io_worker"], [], {"io_worker", "io_core"}),
    (["io_core"], [], {"io_core"}),
    (["ray_data"], [], {"ray_data"}),
    (["ray_data_dataset"], [], {"ray_data_dataset"}),
    (["ray_data", "ray_data_dataset"], ["ray_data"], set()),
    (["io_worker", "raylet"], ["io_worker"], {"raylet"}),
    (["events"], [], {"events"}),
    ([], [], set()),
])
def test_selectors(chosen: list[str], exclude: list[str], families: set[str]) -> None:
    assert names(ray.select(chosen, exclude)) == families


def test_default_and_all() -> None:
    assert names(ray.select(["default"])) == {f.name for f in FAMILIES if f.default}
    assert ray.select(["all"]) == FAMILIES
    assert names(ray.select(["default", "events"])) == {f.name for f in FAMILIES if f.default} | {"events"}
    assert names(ray.select(["all"], ["ray_data"])) == set(BY_NAME) - {"ray_data", "ray_data_dataset"}
    assert ray.select(["serve", "raylet"]) == (BY_NAME["raylet"], BY_NAME["serve"]), "catalogue order"


def test_policy_and_catalogue_name_the_same_components() -> None:
    assert {f.component for f in FAMILIES} == set(model.COMPONENTS)
    assert set(model.COMPONENTS) <= ray.selectors()
    assert set().union(*(f.fields for f in FAMILIES)) <= set(model.RECORD_FIELDS)


def test_reasons_are_given() -> None:
    assert all(f.source for f in FAMILIES)
    assert all(why for _, why in NOT_LOGS)
