"""`validate --native` on real shippers: what is rendered passes, what is broken on purpose is caught."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from shipgen.diagnostics import Diagnostic, Severity
from shipgen.harness.native import check_natively
from shipgen.pipeline import Pipeline, resolve
from shipgen.policy import load
from shipgen.targets import base, plan
from shipgen.targets.plan import Choice

Files = Mapping[str, bytes]
POLICY = r"""
version: 1
name: native
collector: {node: {env: NODE_NAME}}
rotation: {by: ray, owner: "ray:ray"}
sources:
  ray: {type: ray}
  app:
    type: file
    paths: [/var/log/app/*.log]
    format:
      regex: '^(?P<time>\S+ \S+) (?P<level>[A-Z]+) (?P<message>.*)$'
      time: {field: time, layout: python}
    multiline: {start: '^\d{4}-\d\d-\d\d '}
parsing:
  rules:
    - {name: beats, when: {component: raylet, message: {matches: 'heart.*beat'}}, drop: true}
    - {name: mail, redact: {kind: email}}
sinks:
  loki: {type: loki, endpoint: https://loki.example.com, auth: {bearer: {file: /run/secrets/token}}}
"""
MORE = {
    "es": "{type: elasticsearch, endpoints: ['https://es:9200'], auth: {api_key: {env: ES_KEY}}}",
    "s3": "{type: s3, bucket: logs, region: us-east-1, credentials: {access_key_id: {env: A}, "
    "secret_access_key: {env: B}}}",
    "kafka": "{type: kafka, brokers: ['k:9092'], topic: t}",
    "web": "{type: http, endpoint: 'https://h/x'}",
    "out": "{type: console}",
    "kept": "{type: file, path: /var/log/records.jsonl}",
}


def judged(target: str, text: str, directory: Path) -> tuple[Pipeline, Choice]:
    (directory / "p.yaml").write_text(text)
    policy = load([str(directory / "p.yaml")])
    pipeline = resolve(policy)
    return pipeline, plan.choose(target, policy, pipeline)


def with_relay(target: str, text: str) -> str:
    """Filebeat brings nothing to Loki by itself."""
    return text.replace("rotation:", "relay: {target: vector}\nrotation:") if target == "filebeat" else text


@pytest.fixture(params=base.implemented())
def target(request: pytest.FixtureRequest) -> str:
    """A target whose program is here."""
    name = str(request.param)
    binary = base.get(name).binary
    if shutil.which(binary) is None:
        reason = f"there is no `{binary}` on PATH"
        pytest.fail(reason) if request.config.getoption("--require-shippers") else pytest.skip(reason)
    return name


def errors(found: list[Diagnostic]) -> list[str]:
    return [d.text for d in found if d.code == "native-check"]


def test_what_is_rendered_passes(target: str, tmp_path: Path) -> None:
    """With every sink that the target has."""
    text = with_relay(target, POLICY)
    for name, sink in MORE.items():
        if judged(target, f"{text}  {name}: {sink}\n", tmp_path)[1].renders:
            text += f"  {name}: {sink}\n"
    pipeline, choice = judged(target, text, tmp_path)
    assert choice.renders, [d.message for d in choice.diagnostics if d.severity is Severity.ERROR]
    found, code = check_natively(pipeline, [choice])
    assert (errors(found), code) == ([], 0)
    assert len(found) == (2 if choice.relay else 1)
    assert all("not looked at by either: secrets" in note.text for note in found)


@pytest.mark.skipif(shutil.which("vector") is None, reason="there is no `vector` on PATH")
def test_the_aggregator_of_a_hop_is_checked_too(tmp_path: Path) -> None:
    hop = "topology: {via: kafka, brokers: ['k:9092'], topic: logs}\nrotation:"
    pipeline, choice = judged("vector", POLICY.replace("rotation:", hop), tmp_path)
    assert choice.renders, [d.message for d in choice.diagnostics if d.severity is Severity.ERROR]
    found, code = check_natively(pipeline, [choice])
    assert (errors(found), code, len(found)) == ([], 0, 2)
    broken = replaced("consumer_group|group_id", "nonsense", "aggregator/")

    def change(files: Files) -> Files:
        return {path: broken(path, data.decode()).encode() for path, data in files.items()}

    assert errors(check_natively(pipeline, [choice], change)[0])


Break = Callable[[str, str], str]
"""From a path and the text of a file to another text."""


def replaced(pattern: str, text: str, where: str = ".") -> Break:
    def change(path: str, content: str) -> str:
        return re.sub(pattern, text, content, count=1) if re.search(where, path) else content

    return change


OPTION: Mapping[str, Break] = {
    "vector": replaced(r'( *)read_from: .*\n', r'\g<0>\1nonsense_option: 1\n'),
    "fluentbit": replaced(r"( *)(- )?(name: .?tail.?)\n", r"\g<0>\1  nonsense_option: 1\n"),
    "fluentd": replaced(r"  @type shipgen_tail\n", r"\g<0>  nonsense_option 1\n", r"\.conf$"),
    "promtail": replaced(r"positions:\n", r"\g<0>  nonsense_option: 1\n"),
    # it takes any setting that it does not know, so a value is broken
    "filebeat": replaced(r"( check_interval: ).*", r"\1nonsense", "filebeat/"),
}
PROGRAM: Mapping[str, Break] = {
    "vector": replaced(r"del\(\.raw\)", r"del(.raw"),
    "fluentbit": replaced(r"\Z", r"\nend end\n", r"shipgen\.lua$"),
    "fluentd": replaced(r"\Z", r"\nend end\n", r"plugins/shipgen\.rb$|plugins/.*ray\.rb$"),
    "promtail": replaced(r"\{\{", r"{{ nonsense "),
    "filebeat": replaced(r"del\(\.raw\)", r"del(.raw"),  # of its relay
}
REGEX: Break = replaced(r"heart\.\*beat", "heart(.*beat")


@pytest.mark.parametrize("kind", ["option", "program", "regex"])
def test_what_is_broken_is_caught(target: str, kind: str, tmp_path: Path) -> None:
    pipeline, choice = judged(target, with_relay(target, POLICY), tmp_path)
    assert choice.renders, [d.message for d in choice.diagnostics if d.severity is Severity.ERROR]
    breaks = {"option": OPTION.get(target), "program": PROGRAM.get(target), "regex": REGEX}[kind]
    if breaks is None:
        pytest.skip(f"{target} has no {kind} that could be broken")
    touched = []

    def change(files: Files) -> Files:
        after = {path: breaks(path, data.decode()).encode() for path, data in files.items()}
        touched.extend(path for path in files if after[path] != files[path])
        return after

    found, code = check_natively(pipeline, [choice], change)
    assert touched, "nothing was broken"
    assert code == 0
    assert errors(found), [d.text for d in found]
