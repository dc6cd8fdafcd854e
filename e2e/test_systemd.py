"""The rendered units under a real systemd, in namespaces of its own: it reads what only Ray's user may read, keeps its
state, is started again when it dies, and stops in time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from shipgen.cli import main
from shipgen.targets import base, deploy

SESSION = "session_2026-12-01_05-36-20_156597_11006"
POLICY = """
version: 1
name: ray
collector: {{metrics: {{port: {port}}}}}
sources: {{ray: {{type: ray, components: [raylet]}}}}
sinks: {{out: {sink}}}
"""
FILE = "{type: file, path: /var/log/shipped/out.jsonl}"
NOBODY = "{type: loki, endpoint: 'http://127.0.0.1:9'}"
SYSTEMD = Path("/lib/systemd/systemd")

BOOT = """
set -e
root=$1
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/../upper,workdir=$1/../work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys" || mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/sys/fs/cgroup" || true
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
rm -rf "$root/etc/systemd/system" "$root/var/lib/shipgen"
mkdir -p "$root/etc/systemd/system" "$root/etc/sysusers.d" "$root/etc/shipgen" "$root/var/log/shipped"
cp -r "$1/../bundle" "$root/etc/shipgen/ray"
cp "$root"/etc/shipgen/ray/systemd/* "$root/etc/systemd/system"
cp "$root"/etc/shipgen/ray/sysusers.d/* "$root/etc/sysusers.d"
printf '[Unit]\\nWants=%s\\nAllowIsolate=yes\\n' "$2" > "$root/etc/systemd/system/default.target"
if [ ! -e "$root$4" ]; then mkdir -p "$(dirname "$root$4")"; printf '#!/bin/sh\\nexec %s "$@"\\n' "$3" > "$root$4"; fi
chmod 755 "$root$4"
chroot "$root" systemd-sysusers
chroot "$root" chown shipgen /var/log/shipped
export container=test
exec chroot "$root" /lib/systemd/systemd --unit=default.target --show-status=no
"""


class Node:
    """A systemd that runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        (self.pid,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        self.root = Path(f"/proc/{self.pid}/root")

    def run(self, *argv: str, check: bool = True) -> str:
        """A command in there."""
        done = subprocess.run(["nsenter", "-t", self.pid, "-a", f"--root=/proc/{self.pid}/root", *argv],
                              capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout

    def show(self, unit: str, setting: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", setting, unit).strip()


def until(true: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what()
        time.sleep(0.2)


def missing(target: str) -> str:
    if os.geteuid() != 0:
        return "needs root"
    for program in ("unshare", "nsenter", "systemd-sysusers"):
        if shutil.which(program) is None:
            return f"there is no {program} on PATH"
    if not SYSTEMD.exists():
        return "there is no systemd"
    if shutil.which(base.get(target).binary) is None:
        return f"there is no {base.get(target).binary} on PATH"
    return ""


@pytest.fixture(params=[name for name in base.implemented() if name != "filebeat"])
def node(request: pytest.FixtureRequest) -> Iterator[tuple[str, Node]]:
    target = request.param
    if why := missing(target):
        pytest.skip(why)
    place = Path(f"/run/shipgen-test-{os.getpid()}")  # an overlay wants another file system than the one below it
    for name in ("root", "upper", "work"):
        (place / name).mkdir(parents=True)
    sink = NOBODY if target == "promtail" else FILE
    (place / "policy.yaml").write_text(POLICY.format(port=20_000 + os.getpid() % 10_000, sink=sink))
    done = CliRunner().invoke(main, ["render", str(place / "policy.yaml"), "-t", target, "--with", "systemd",
                                     "-o", str(place / "bundle")])
    assert done.exit_code == 0, done.output
    unit = f"shipgen-ray-{target}.service"
    program = str(shutil.which(base.get(target).binary))
    log = (place / "log").open("wb")
    process = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup", "--kill-child", "bash", "-c", BOOT,
         "boot", str(place / "root"), unit, program, deploy.PACKAGES[target].program],
        stdout=log, stderr=log,
    )
    try:
        until(lambda: process.poll() is not None or _booted(process), 30, lambda: (place / "log").read_text())
        if process.poll() is not None:
            pytest.skip(f"systemd does not start in namespaces here: {(place / 'log').read_text()[-200:]}")
        yield unit, Node(process)
    finally:
        process.kill()
        process.wait(10)
        log.close()
        shutil.rmtree(place, ignore_errors=True)


def _booted(process: subprocess.Popen[bytes]) -> bool:
    try:
        said = Node(process).run("systemctl", "is-system-running", check=False).strip()
        return said in ("running", "degraded", "starting")
    except (ValueError, OSError):
        return False


def test_a_unit_at_work(node: tuple[str, Node]) -> None:
    unit, there = node
    journal: Callable[[], str] = lambda: there.run("journalctl", "--no-pager", "-u", unit, check=False)  # noqa: E731
    until(lambda: there.show(unit, "ActiveState") == "active" or "unshare failed" in journal(), 60, journal)
    if there.show(unit, "ActiveState") != "active":
        pytest.skip("the program on PATH makes namespaces of its own, which the unit forbids")

    # Ray starts after the shipper, as another user, who keeps its files to itself
    logs = there.root / "tmp/ray" / SESSION / "logs"
    logs.mkdir(parents=True)
    raylet = logs / "raylet.out"
    for text in ("one", "two"):
        with raylet.open("a") as file:
            file.write(f"[2026-12-01 05:36:23,438 I 11309 11319] (raylet) a.cc:1: {text}\n")
    raylet.chmod(0o600)
    (there.root / "tmp/ray").chmod(0o700)
    promtail = "promtail" in unit
    shipped = there.root / "var/log/shipped/out.jsonl"
    state = there.root / "var/lib/shipgen/ray" / unit.removeprefix("shipgen-ray-").removesuffix(".service")

    def arrived() -> bool:
        if promtail:
            return any("raylet.out" in p.read_text() for p in state.iterdir() if p.is_file())
        return shipped.exists() and len(shipped.read_text().splitlines()) >= 1

    until(arrived, 60, journal)
    if not promtail:
        assert json.loads(shipped.read_text().splitlines()[0])["message"] == "one"
    main_pid = there.show(unit, "MainPID")
    assert there.run("ps", "-o", "user=", "-p", main_pid).strip() == "shipgen"
    assert state.stat().st_mode & 0o777 == 0o750

    # killed, it comes back
    there.run("kill", "-9", main_pid)
    until(lambda: there.show(unit, "ActiveState") == "active" and there.show(unit, "MainPID") not in ("0", main_pid),
          60, journal)

    # stopped, it is given the time that it needs
    until(lambda: there.show(unit, "ActiveState") == "active", 60, journal)
    time.sleep(3)
    there.run("systemctl", "stop", unit)
    assert there.show(unit, "Result") == "success", journal()
