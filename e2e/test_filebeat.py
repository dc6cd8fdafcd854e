"""The recorded trees, live files and policies of many kinds through a real Filebeat and its relay into a real Loki."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import test_vector_live as live
import test_vector_policies as others
import yaml
from policies import FILEBEAT, POLICY, TREES, VECTOR, Run, run_of

from shipgen.harness import native, report
from shipgen.harness.replay import copy_tree
from shipgen.harness.runners import Relayed
from shipgen.harness.verify import Render, Stage, StaticTree
from shipgen.pipeline import resolve
from shipgen.pipeline.model import Pipeline
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import plan


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Verify a policy on Filebeat: a recorded tree by its name, or a scenario."""
    return run_of("filebeat", request, tmp_path)


def test_live_files(run: Run) -> None:
    """What the relay has not answered when Filebeat is stopped comes again; Filebeat does not wait for it."""
    life = live.Life()
    found = run(life)
    verdict = found.sinks["loki"]
    assert verdict.lost == verdict.wrong == verdict.extra == 0, report.written(found, "text")
    assert verdict.duplicated <= 50, report.written(found, "text")
    assert verdict.expected == life.lines.count


def test_killed_while_files_turn(run: Run) -> None:
    """SIGKILL, of both: what was read and not delivered is read again. Repeats are allowed, loss is not."""
    life = live.Life(kill=True)
    found = run(life)
    verdict = found.sinks["loki"]
    assert verdict.lost == verdict.wrong == verdict.extra == 0, report.written(found, "text")
    assert verdict.duplicated <= life.lines.count // 2, report.written(found, "text")


class RelayKilled(live.Life):
    """The relay alone is killed, twice, and what Filebeat reads meanwhile waits for it."""

    name = "the relay is killed"

    def during(self, stage: Stage) -> None:
        for _ in range(2):
            self.write(stage.writer, live.RINGS, 20)
            time.sleep(1)
            assert isinstance(stage.shipper, Relayed)
            assert stage.run.relay
            stage.shipper.relay.kill()
            self.write(stage.writer, live.RINGS, 20)
            self.rotate(stage.writer, live.RINGS[:10])
            stage.shipper.relay = stage.runner.start_shipper(stage.run.relay)
        self.write(stage.writer, live.RINGS, 3)


def test_killed_relay(run: Run) -> None:
    life = RelayKilled()
    found = run(life)
    verdict = found.sinks["loki"]
    assert verdict.expected == life.lines.count
    assert verdict.lost == verdict.wrong == verdict.extra == 0, report.written(found, "text")
    assert verdict.duplicated <= 2 * 2048, report.written(found, "text")


def test_files_of_other_sources(run: Run, tmp_path: Path) -> None:
    node = tmp_path / "tree"
    copy_tree(TREES / "text-worker-node", node / "tmp" / "ray")
    for job in ("a", "tmp-1"):
        (node / "data" / "jobs" / job).mkdir(parents=True)
        lines = [f"2026-12-01 05:36:{n:02},{n:03} INFO step {n} of {job}\n  and more" for n in range(20)]
        (node / "data" / "jobs" / job / "train.log").write_text("\n".join(["before any start", *lines, ""]))
    (node / "var" / "log" / "app").mkdir(parents=True)
    (node / "var" / "log" / "app" / "x.log").write_text("".join(f"line {n}\n" for n in range(30)))
    found = run(StaticTree(node), POLICY.replace("sources: {ray: {type: ray}}\n", others.FILES))
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected == 193 + 21 + 30


def test_a_redaction_that_fails_delivers_nothing_of_the_text(run: Run) -> None:
    """A fault is put into the relay's program."""

    def change(render: Render) -> Render:
        def broken(of: Pipeline) -> dict[str, bytes]:
            files = dict(render(of))
            text = files["relay/vector.yaml"].decode()
            begin = text.index('"rule::runtime-env-vars+first"')
            old = 'raw = (string(.raw) ?? "")'
            files["relay/vector.yaml"] = (text[:begin] + text[begin:].replace(old, 'abort; raw = ""', 1)).encode()
            return files

        return broken

    rules = ("parsing: {timezone: UTC, rules: ["
             '{name: first, when: {component: raylet}, redact: {pattern: "Raylet"}}]}')
    found = run("text-worker-node", POLICY.replace("parsing: {timezone: UTC}", rules), change)
    verdict = found.sinks["loki"]
    assert verdict.delivered == verdict.expected, report.written(found, "text")
    given = [e.given for e in verdict.examples if e.what in ("line", "extra")]
    assert given
    assert all("[redaction failed]" in text for text in given), given


def test_filebeat_reads_text_as_it_is_meant(tmp_path: Path) -> None:
    """Filebeat's own reader, on text that its grammar has a use for."""
    if shutil.which("filebeat") is None:
        pytest.skip("there is no `filebeat` on PATH")
    text = "$HOME ${HOME} $$ $} ${x:y} %{[a]} %{+yyyy} 'q' \"d\" # a: b &c *d !e |f >g ~ é日\U0001f600"
    glob = "/a" + "".join(c for c in text if c not in "{}`,*?[]\\")
    data = {
        "version": 1, "name": "t", "relay": {"target": "vector"},
        "collector": {"node": text, "state_dir": f"{tmp_path}/st$$x"},
        "targets": {"filebeat": {"version": "9.0"}, "vector": {"version": "0.57"}}, "sinks": {"c": {"type": "console"}},
        "sources": {"a": {"type": "file", "paths": [f"{glob}/*"], "exclude": [f"{glob}/x"],
                          "multiline": {"start": r"^\$\{HOME\}[$]$"}}},
    }
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(data, ensure_ascii=False))
    loaded = load([str(file)])
    pipeline = resolve(loaded)
    bundle.write(bundle.of(pipeline, [plan.choose("filebeat", loaded, pipeline)]), tmp_path / "bundle")
    config = str(tmp_path / "bundle/filebeat/filebeat.yml")
    argv = ["filebeat", "export", "config", "--strict.perms=false", "-c", config]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    read = yaml.safe_load(done.stdout)
    assert read["name"] == text
    assert read["path"]["data"] == f"{tmp_path}/st$$x/t/filebeat"
    (source,) = read["filebeat"]["inputs"]
    assert source["paths"] == [f"{glob}/*"]
    assert source["parsers"][0]["multiline"]["pattern"] == r"^\$\{HOME\}[$]$"
    assert re.search(source["prospector"]["scanner"]["exclude_files"][0].replace(r"\z", r"\Z"), f"{glob}/x")


def test_native_check_takes_what_is_rendered(tmp_path: Path) -> None:
    for program in ("filebeat", "vector"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no `{program}` on PATH")
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace(VECTOR, FILEBEAT))
    loaded = load([str(file)])
    pipeline = resolve(loaded)
    found, code = native.check_natively(pipeline, [plan.choose("filebeat", loaded, pipeline)])
    assert code == 0
    assert [d.code for d in found] == ["native-unchecked", "native-unchecked"], found
