"""The field cases that need a shipper while something happens: faults that people who ship Ray's logs have met.

Each test is named after its case. What files alone can say is a parity case; `docs/field-cases.md` says which.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from receivers.web import ObjectServer
from sinks import differences, prepare

from shipgen.harness import report
from shipgen.harness.loki import OWN_LABELS
from shipgen.harness.runners import LocalRunner, tagged_processes
from shipgen.harness.verify import Report, Stage, verify
from shipgen.pipeline import resolve
from shipgen.pipeline.model import Pipeline, Source
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan
from shipgen.targets.plan import Choice

TARGETS = base.implemented()
POLICY: dict[str, Any] = {
    "version": 1,
    "name": "cases",
    "cluster": "test",
    "collector": {"discover_every": "1s", "node": "node-1"},
    "parsing": {"timezone": "UTC"},
    "sources": {"ray": {"type": "ray"}},
    "sinks": {"loki": {"type": "loki", "endpoint": "http://loki.invalid:3100"}},
}
TRACEBACK = ["Traceback (most recent call last):", '  File "/app/train.py", line 16, in step', "ZeroDivisionError: x"]
WORKER = "worker-{:056x}-01000000-{}.{}".format

Act = Callable[[Stage], None]
Ship = Callable[..., Report]


def nothing(_: Stage) -> None:
    """Nothing happens."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a case does to files. What has to arrive is what the writer's ledger holds."""

    name: str
    written_before: Act = nothing
    happens: Act = nothing

    def before(self, stage: Stage) -> None:
        """A session, and what is in it when the shipper starts."""
        stage.writer.new_session()
        self.written_before(stage)

    def during(self, stage: Stage) -> None:
        """What the case is about."""
        self.happens(stage)

    def truth(self, stage: Stage) -> Path:
        """Everything that was written."""
        return stage.writer.ledger


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    """Each target whose shipper is there."""
    name: str = request.param
    for program in ("loki", base.get(name).binary):
        if shutil.which(program) is None:
            reason = f"there is no `{program}` on PATH"
            (pytest.fail if request.config.getoption("--require-shippers") else pytest.skip)(reason)
    return name


@pytest.fixture
def ship(target: str, tmp_path: Path) -> Ship:
    """Run a scene through a real shipper, with changes to the policy."""

    def ship(scene: Scene, **changes: Any) -> Report:
        pipeline, choice = resolved(tmp_path, target, **changes)
        assert choice.target is not None
        version = choice.version

        def render(of: Pipeline) -> dict[str, bytes]:
            return dict(bundle.of(of, [choice]).files)

        found = verify(pipeline, render, choice.target, version, scene, LocalRunner(), keep=tmp_path / "kept")
        assert found.ok, report.written(found, "text")
        return found

    return ship


def resolved(directory: Path, target: str, **changes: Any) -> tuple[Pipeline, Choice]:
    """A policy for a target, which can express it."""
    file = directory / "policy.yaml"
    relay = {"relay": {"target": "vector"}} if target == "filebeat" else {}
    file.write_text(yaml.safe_dump({**POLICY, **relay, **changes}))
    policy = load([str(file)])
    pipeline = resolve(policy)
    choice = plan.choose(target, policy, pipeline)
    if not choice.renders:
        pytest.skip(f"{target} refuses the policy: {[d.message for d in choice.diagnostics]}")
    return pipeline, choice


def stamp(ago: timedelta = timedelta(0)) -> str:
    at = datetime.now(UTC) - ago
    return f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}"


def raylet(stage: Stage, first: int, last: int, session: str = "") -> None:
    """Numbered lines of raylet.out."""
    for number in range(first, last + 1):
        stage.writer.write("raylet.out", f"[{stamp()} I 310 322] (raylet) a.cc:1: line {number}", session=session)


def arrived(stage: Stage, count: int, within_s: float) -> float:
    """Wait until so many entries have reached Loki; gives the seconds that it took."""
    began = time.monotonic()
    while stage.client.received() < count:
        assert time.monotonic() - began < within_s, f"{stage.client.received()} of {count} after {within_s} s"
        time.sleep(0.1)
    return time.monotonic() - began


def settings(**loki: Any) -> dict[str, Any]:
    return {"sinks": {"loki": {**POLICY["sinks"]["loki"], **loki}}}


def test_b01_each_line_once_whatever_is_rotated(ship: Ship) -> None:
    """40 lines and three rotations, with more than a rescan between them."""

    def happens(stage: Stage) -> None:
        for turn in range(3):
            raylet(stage, 10 * turn + 1, 10 * turn + 10)
            time.sleep(3)
            stage.writer.rotate("raylet.out")
        raylet(stage, 31, 40)
        time.sleep(3)

    assert ship(Scene("rotation", happens=happens)).sinks["loki"].expected == 40


def test_b04_b06_the_link_moves_to_a_new_session(ship: Ship) -> None:
    """Each line once although a link to its directory lies beside it; the old session's tail comes too, in 15 s."""

    def before(stage: Stage) -> None:
        raylet(stage, 1, 3)

    def happens(stage: Stage) -> None:
        arrived(stage, 3, 30)
        old = stage.writer.session
        stage.writer.new_session()
        raylet(stage, 4, 5, session=old)
        raylet(stage, 6, 10)
        arrived(stage, 10, 15)

    assert ship(Scene("a new session", before, happens)).sinks["loki"].expected == 10


def test_b07_thousands_of_empty_files(ship: Ship) -> None:
    """5,000 empty files and 50 with a line: the lines arrive, and idle files cost next to nothing."""

    def before(stage: Stage) -> None:
        for number in range(2500):
            for stream in ("out", "err"):
                (stage.writer.logs() / WORKER(number, 4000, stream)).touch()
        for number in range(50):
            stage.writer.write(WORKER(9000 + number, 4000, "err"), f"line {number}")

    def happens(stage: Stage) -> None:
        arrived(stage, 50, 60)
        time.sleep(5)
        assert descriptors(stage) < 5500
        used = cpu_seconds(stage)
        time.sleep(5)
        assert cpu_seconds(stage) - used < 2.5

    assert ship(Scene("empty files", before, happens)).sinks["loki"].expected == 50


def processes(stage: Stage) -> list[Path]:
    """The shipper's processes."""
    found = [Path(f"/proc/{pid}") for pid in tagged_processes(stage.runner.workdir.name)]
    return [process for process in found if (process / "exe").resolve().name != "loki"]


def descriptors(stage: Stage) -> int:
    """Files that the shipper holds open."""
    return sum(len(list((process / "fd").iterdir())) for process in processes(stage))


def cpu_seconds(stage: Stage) -> float:
    """What the shipper has used so far."""
    fields = [(process / "stat").read_text().rpartition(")")[2].split() for process in processes(stage)]
    return sum(int(user) + int(system) for *_, user, system in (f[:13] for f in fields)) / os.sysconf("SC_CLK_TCK")


def test_b11_before_and_after_the_start_and_a_restart(ship: Ship) -> None:
    """Eight lines before the start, two after, two while it is stopped: each once."""

    def before(stage: Stage) -> None:
        raylet(stage, 1, 8)

    def happens(stage: Stage) -> None:
        arrived(stage, 8, 30)
        raylet(stage, 9, 10)
        arrived(stage, 10, 30)
        stage.stop()
        raylet(stage, 11, 12)
        stage.start()

    assert ship(Scene("a restart", before, happens)).sinks["loki"].expected == 12


def test_b12_an_excluded_file_that_comes_later_stays_unread(ship: Ship) -> None:
    """Old builds of Promtail excluded only files that were there at the start."""
    app = {"type": "file", "paths": ["/data/*.log", "/data/*/*.log"], "exclude": ["/data/*.gz.log", "/data/old/*.log"]}

    def write(stage: Stage, name: str, text: str) -> None:
        place = stage.root / "data" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a") as file:
            file.write(text + "\n")

    def before(stage: Stage) -> None:
        for name in ("a.log", "a.gz.log", "old/b.log", "sub/c.gz.log"):
            write(stage, name, f"of {name}, there at the start")

    def happens(stage: Stage) -> None:
        arrived(stage, 2, 30)
        for name in ("later.log", "later.gz.log", "old/later.log", "sub/later.gz.log"):
            write(stage, name, f"of {name}, written later")
        time.sleep(5)

    found = ship(Scene("excluded files", before, happens), sources={"app": app})
    assert found.sinks["loki"].expected == 4


@pytest.mark.parametrize("late", ["drop", "restamp"])
def test_b24_old_lines_beside_new_ones(ship: Ship, late: str) -> None:
    """Lines of a month ago are dropped or restamped; those of now keep their time, and nothing blocks."""

    def before(stage: Stage) -> None:
        for number in range(5):
            for ago in (timedelta(days=30), timedelta(0)):
                line = f"[{stamp(ago)} I 310 322] (raylet) a.cc:1: {ago.days} days ago, {number}"
                stage.writer.write("raylet.out", line)

    delivered = ship(Scene("old and new", before), **settings(late=late)).sinks["loki"].delivered
    assert delivered == (5 if late == "drop" else 10)


def test_b25_the_last_traceback_does_not_wait(ship: Ship) -> None:
    """It arrives two seconds after its last line and a little for the batch; and it survives SIGTERM."""

    def happens(stage: Stage) -> None:
        raylet(stage, 1, 1)
        arrived(stage, 1, 30)
        stage.writer.write(WORKER(1, 4000, "err"), f"{stamp()}\tERROR train.py:18 -- boom", *TRACEBACK)
        assert arrived(stage, 2, 10) < 6.5  # found within 1 s, complete after 2 s, sent after 1 s; 2.5 s to spare
        stage.writer.write(WORKER(1, 4000, "err"), f"{stamp()}\tERROR train.py:19 -- last words", *TRACEBACK)
        time.sleep(0.5)
        stage.stop()
        stage.start()

    assert ship(Scene("a last traceback", happens=happens)).sinks["loki"].expected == 3


def test_b28_two_megabytes_in_one_line(ship: Ship) -> None:
    """The line is cut and says so; what follows arrives."""

    def happens(stage: Stage) -> None:
        stage.writer.write(WORKER(1, 4000, "out"), "x" * 40_000, "after the first", "y" * 2 * 2**20, "after the second")

    assert ship(Scene("long lines", happens=happens)).sinks["loki"].expected == 4


def test_b30_streams_do_not_grow_with_files(ship: Ship) -> None:
    """50 worker files of two levels, and the prints that have none: three streams."""
    streams: list[set[tuple[tuple[str, str], ...]]] = []

    def before(stage: Stage) -> None:
        for number in range(50):
            stage.writer.write(WORKER(number, 4000, "out"), f"a print of {number}")
            stage.writer.write(WORKER(number, 4000, "err"), f"{stamp()}\tINFO a.py:1 -- info of {number}")
            stage.writer.write(WORKER(number, 4000, "err"), f"{stamp()}\tERROR a.py:1 -- error of {number}")

    def happens(stage: Stage) -> None:
        arrived(stage, 150, 60)
        entries = stage.client.read_all(start_ns=time.time_ns() - 3600 * 10**9)
        streams.append({tuple(sorted((k, v) for k, v in e.labels.items() if k not in OWN_LABELS)) for e in entries})

    ship(Scene("fifty workers", before, happens))
    assert len(streams[0]) == 3
    names = {name for stream in streams[0] for name, _ in stream}
    assert names == {"job", "cluster", "component", "level", "node"}


def test_b46_a_new_source_in_front_reads_nothing_again(ship: Ship, target: str, tmp_path: Path) -> None:
    """Rendered again with another source in front and another label, and restarted: no line twice."""
    app = {"type": "file", "paths": ["/data/app/*.log"]}

    def before(stage: Stage) -> None:
        raylet(stage, 1, 5)
        (stage.root / "data/app").mkdir(parents=True)
        (stage.root / "data/app/a.log").write_text("one\ntwo\n")

    def happens(stage: Stage) -> None:
        arrived(stage, 7, 30)
        stage.stop()
        new = replace(next(s for s in stage.pipeline.sources if s.name == "app"), name="new", paths=("/nowhere/*.log",))
        render_again(stage, target, tmp_path, new)
        raylet(stage, 6, 8)
        stage.start()

    found = ship(Scene("rendered again", before, happens), sources={"app": app, **POLICY["sources"]})
    assert found.sinks["loki"].expected == 10


def render_again(stage: Stage, target: str, directory: Path, new: Source) -> None:
    """Write the bundle of the run anew, with one more source in front."""
    changed = replace(
        stage.pipeline,
        sources=(new, *reversed(stage.pipeline.sources)),
        sinks=tuple(replace(s, sources=("new", *s.sources)) for s in stage.pipeline.sinks),
    )
    _, choice = resolved(directory, target)
    for path, content in bundle.of(changed, [choice]).files.items():
        (stage.run.bundle / path).write_bytes(content)


def test_b37_two_nodes_write_into_one_bucket(target: str, tmp_path: Path) -> None:
    """Both flush at the same moment, under the same name even: all lines are there, and no object is written twice."""
    keys = {"access_key_id": {"env": "KEY"}, "secret_access_key": {"env": "SECRET"}}
    with ObjectServer("ray-logs", "AK", "secret") as server, LocalRunner() as runner:
        sink = {
            "type": "s3", "bucket": "ray-logs", "endpoint": server.url(), "path_style": True, "credentials": keys,
            "prefix": {"by": ["component"], "date": "daily"}, "batch": {"max_bytes": "64KiB", "max_wait": "1s"},
        }  # fmt: skip
        env = {"KEY": "AK", "SECRET": "secret"}
        try:
            jobs = [
                prepare(target, {"out": sink}, "text-worker-node", tmp_path / node, runner, env) for node in ("a", "b")
            ]
        except LookupError as reason:
            pytest.skip(str(reason))
        for job in jobs:
            job.start()
        expected = [record for job in jobs for record in job.expected()]
        jobs[0].settle(server, len(expected))
        for job in jobs:
            job.stop()
        assert server.problems == []  # among them: a PUT to a key that there is
        assert differences(expected, server.records) == {"missing": [], "surplus": []}


@pytest.mark.parametrize("target", ["vector"], indirect=True)
def test_b33_vector_starts_with_what_its_checker_skips(target: str, tmp_path: Path) -> None:
    """`vector validate` looks at templates only where it also looks at the environment."""
    pipeline, choice = resolved(tmp_path, target, collector={"state_dir": str(tmp_path / "state"), "node": "n"})
    bundle.write(bundle.of(pipeline, [choice]), tmp_path / "bundle")
    (tmp_path / "state" / pipeline.name / target).mkdir(parents=True)
    config = str(tmp_path / "bundle" / base.get(target).main_config)
    argv = ["vector", "validate", "--skip-healthchecks", config]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


DOLLARS = {"team": "a$b", "x": "${HOME} $1 $$ $HOME", "d": "$"}


@pytest.mark.parametrize("target", ["vector"], indirect=True)
@pytest.mark.parametrize("flag", ["true", "false"])
@pytest.mark.parametrize("version", ["0.56", "0.57"])
def test_b38_a_dollar_is_a_dollar(
    ship: Ship, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, flag: str
) -> None:
    """On both sides of the version that changed what `$name` means, and with the flag that changes it back."""
    if version == "0.56":
        if (older := shutil.which("vector-0.56")) is None:
            pytest.skip("there is no `vector-0.56` on PATH")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/vector").symlink_to(older)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def before(stage: Stage) -> None:
        stage.run = replace(
            stage.run, env={**stage.run.env, "VECTOR_DANGEROUSLY_ALLOW_ENV_VAR_INTERPOLATION": flag}
        )
        raylet(stage, 1, 3)

    labels = {"static": DOLLARS, "fields": ["component"]}
    ship(Scene("dollars", before), targets={"vector": {"version": version}}, **settings(labels=labels))


def test_b40_no_text_of_the_policy_runs(ship: Ship, tmp_path: Path) -> None:
    """Labels that are code in Fluentd, a shell, Go templates and VRL arrive as they are, and leave no trace."""
    canary = tmp_path / "canary"
    static = {
        "note": f"x#{{`touch {canary}`}}y", "shell": f"$(touch {canary}) `touch {canary}`", "quotes": "it's \\ \"ok\"",
        "hash": "a #b", "go": "{{ env `HOME` }}", "lua": f"\" .. os.execute('touch {canary}') .. \"",
    }  # fmt: skip

    def before(stage: Stage) -> None:
        raylet(stage, 1, 3)

    ship(Scene("code in labels", before), **settings(labels={"static": static, "fields": ["component"]}))
    assert not canary.exists()
