"""Nothing of a run is left behind, however it ends; what an earlier one left is found."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from shipgen.diagnostics import OutsideError
from shipgen.harness import runners
from shipgen.harness.runners import TAG_VARIABLE, LocalRunner, TargetRun

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of this test only, and `loki` is the small one."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    programs = tmp_path / "bin"
    programs.mkdir()
    write_program(programs / "loki", HERE / "fake_loki.py")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return scratch


def write_program(path: Path, script: Path) -> None:
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    path.chmod(0o755)


def shell(workdir: Path, script: str, ready: str = "") -> TargetRun:
    return TargetRun("fake", ("sh", "-c", script), "img:1", workdir, workdir / "state", workdir, ready=ready)


def leftovers(scratch: Path) -> list[str]:
    return [path.name for path in scratch.glob(f"{runners.PREFIX}*")]


def test_everything_is_gone_afterwards(own_temporary_directory: Path) -> None:
    with LocalRunner() as runner:
        loki = runner.start_loki()
        shipper = runner.start_shipper(shell(runner.workdir, "echo up; sleep 600 & sleep 600", ready="up"))
        assert loki.url == loki.endpoint
        assert shipper.running()
        assert len(runners.tagged_processes(runner.name)) >= 3
        name = runner.name
    assert runners.tagged_processes(name) == []
    assert leftovers(own_temporary_directory) == []


def test_everything_is_gone_after_an_exception(own_temporary_directory: Path) -> None:
    runner = LocalRunner()

    def fail() -> None:
        with runner:
            runner.start_loki()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert runners.tagged_processes(runner.name) == []
    assert leftovers(own_temporary_directory) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_everything_is_gone_after_a_signal(own_temporary_directory: Path, number: signal.Signals) -> None:
    process, name = start_a_run()
    process.send_signal(number)
    assert process.wait(20) in (-number, 128 + number)
    assert runners.tagged_processes(name) == []
    assert leftovers(own_temporary_directory) == []


def test_a_killed_run_is_found_by_the_next(own_temporary_directory: Path) -> None:
    process, name = start_a_run()
    process.kill()
    process.wait()
    assert leftovers(own_temporary_directory) == [name]
    assert runners.tagged_processes(name)
    with LocalRunner() as runner:
        assert leftovers(own_temporary_directory) == [runner.name]
        assert runners.tagged_processes(name) == []


def start_a_run() -> tuple[subprocess.Popen[str], str]:
    script = (
        "import time\n"
        "from shipgen.harness.runners import LocalRunner\n"
        "with LocalRunner() as runner:\n"
        "    runner.start_loki()\n"
        "    print(runner.name, flush=True)\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        return process, process.stdout.readline().strip()


def test_a_run_that_is_still_there_is_left_alone(own_temporary_directory: Path) -> None:
    with LocalRunner() as first, LocalRunner() as second:
        assert sorted(leftovers(own_temporary_directory)) == sorted([first.name, second.name])


def test_whose_run_is_abandoned() -> None:
    mine = json.loads(runners.owner())
    assert not runners.abandoned(json.dumps(mine))
    assert runners.abandoned(json.dumps(mine | {"started": "1"}))  # the number was given to another process
    assert not runners.abandoned(json.dumps(mine | {"namespace": "another machine", "pid": 1}))
    assert not runners.abandoned("")
    assert not runners.abandoned("{}")
    with subprocess.Popen(["true"]) as gone:
        pass
    assert runners.abandoned(json.dumps(mine | {"pid": gone.pid}))


def test_directories_of_others_are_left_alone(own_temporary_directory: Path) -> None:
    (own_temporary_directory / f"{runners.PREFIX}without-owner").mkdir()
    assert runners.sweep_directories() == []
    assert leftovers(own_temporary_directory) == [f"{runners.PREFIX}without-owner"]


def test_signals_are_as_before() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with LocalRunner():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with LocalRunner() as runner:
        with pytest.raises(OutsideError, match=r"no program `loki` on PATH.*grafana/loki:") as error:
            runner.start_loki()
        assert error.value.exit_code == 3
        with pytest.raises(OutsideError, match=r"no program `sh`.*img:1"):
            runner.start_shipper(shell(runner.workdir, ""))


def test_a_shipper_that_does_not_start_is_quoted() -> None:
    said = r"fake ended before it was ready; its log ends with:\n  unknown option"
    with LocalRunner() as runner, pytest.raises(OutsideError, match=said):
        runner.start_shipper(shell(runner.workdir, "echo unknown option >&2; exit 78", ready="up"))


def test_stop_kill_and_start_again() -> None:
    with LocalRunner() as runner:
        script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        first = runner.start_shipper(shell(runner.workdir, script, "up"))
        first.stop()
        assert not first.running()
        assert first.log() == "up\nbye\n"
        second = runner.start_shipper(shell(runner.workdir, script, "up"))
        second.kill()
        assert not second.running()
        assert second.log() == "up\n"
        stubborn = runner.start_shipper(
            shell(runner.workdir, "trap '' TERM; echo up; sleep 600 & wait; sleep 600", "up")
        )
        began = time.monotonic()
        stubborn.stop(0.3)
        assert time.monotonic() - began < 5
        assert not stubborn.running()


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount takes root")
def test_a_small_disk_is_full_soon_and_gone_afterwards(own_temporary_directory: Path) -> None:
    with LocalRunner() as runner:
        try:
            runner.small_disk(runner.workdir / "state", 64 * 1024)
        except OutsideError as error:
            pytest.skip(str(error))
        with pytest.raises(OSError, match="No space left"):
            (runner.workdir / "state" / "x").write_bytes(b"x" * 128 * 1024)
        assert str(runner.workdir) in Path("/proc/self/mounts").read_text()
        name = str(runner.workdir)
    assert name not in Path("/proc/self/mounts").read_text()
    assert leftovers(own_temporary_directory) == []


def test_what_a_shipper_takes_is_counted_in_all_its_processes() -> None:
    with LocalRunner() as runner:
        busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
        shipper = runner.start_shipper(shell(runner.workdir, f"({busy}) & wait; {busy}; echo up; sleep 600", "up"))
        usage = shipper.usage()
        assert usage.cpu_s > 0
        assert usage.peak_bytes > 100_000
        assert (usage + runners.Usage(1.0, 5)) == runners.Usage(usage.cpu_s + 1.0, usage.peak_bytes)


def test_logs_and_bundle_can_be_kept(tmp_path: Path) -> None:
    with LocalRunner() as runner:
        (runner.workdir / "bundle").mkdir()
        (runner.workdir / "bundle" / "x.yaml").write_text("x")
        for _ in range(2):
            runner.start_shipper(shell(runner.workdir, "echo up; sleep 600", "up"))
        runner.keep(tmp_path / "kept")
    names = {path.relative_to(tmp_path / "kept").as_posix() for path in (tmp_path / "kept").rglob("*")}
    assert names == {"bundle", "bundle/x.yaml", "fake.log", "fake-1.log"}


def test_a_shipper_sees_no_variables_that_would_configure_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CONFIG", "/etc/other")
    with LocalRunner() as runner:
        run = shell(runner.workdir, f'echo "[$FAKE_CONFIG] ${TAG_VARIABLE} up"; sleep 600', "up")
        assert runner.start_shipper(run).log() == f"[] {runner.name} up\n"


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # the SDK leaves its socket to the collector
def test_no_docker_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(OutsideError, match="no Docker engine answers"), runners.DockerRunner():
        pass
    gc.collect()
