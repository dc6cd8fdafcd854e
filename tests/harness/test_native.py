"""`validate --native`, with scripts in the place of shippers; e2e has the real ones."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from making import judged, policy, resolved

from shipgen.harness import native
from shipgen.harness.runners import LocalRunner
from shipgen.rendering import bundle
from shipgen.targets import base

SINKS: dict[str, dict[str, Any]] = {
    "loki": {"type": "loki", "endpoint": "https://real.example.com", "auth": {"bearer": {"file": "/real/token"}},
             "tls": {"ca_file": "/real/ca.pem"}},
    "es": {"type": "elasticsearch", "endpoints": ["https://real.example.com:9200"]},
    "s3": {"type": "s3", "bucket": "logs", "endpoint": "https://real.example.com"},
    "kafka": {"type": "kafka", "brokers": ["real.example.com:9092"], "topic": "t"},
    "web": {"type": "http", "endpoint": "https://real.example.com/x", "headers": {"X-Key": {"file": "/real/key"}}},
    "kept": {"type": "file", "path": "/real/records"},
}


@pytest.mark.parametrize("target", base.implemented())
def test_nothing_real_is_left_in_what_is_started(target: str) -> None:
    """No sink, secret, state or log file of the node: a check must not ship a record."""
    relay = {"relay": {"target": "vector"}} if target == "filebeat" else {}
    sinks = {
        name: sink for name, sink in SINKS.items()
        if judged(policy(targets={target: {}}, sinks={"s": sink}, **relay), target).renders
    }
    node = {"ray": {"temp_dir": "/real/ray"}, "collector": {"state_dir": "/real/s"}}
    data = policy(targets={target: {}}, sinks=sinks, **node, **relay)
    data["sources"]["app"] = {"type": "file", "paths": ["/real/*.log"], "exclude": ["/real/x*.log"]}
    choice = judged(data, target)
    assert choice.renders, choice.diagnostics
    with LocalRunner() as runner:
        (runner.workdir / "state").mkdir()
        here = native.harmless(resolved(data), runner, "http://127.0.0.1:1")
        files = bundle.of(here, [choice]).files
        text = b"".join(d for path, d in files.items() if path.startswith((f"{target}/", "relay/"))).decode()
        text = re.sub(r"/node/real/", "/node/", text)  # below the run's own directory
        assert "127.0.0.1:1" in text
    assert "real.example.com" not in text
    assert "/real/" not in text


def test_nothing_real_is_left_of_a_hop() -> None:
    secret = {"file": "/real/secret"}
    hop = {"via": "kafka", "brokers": ["real.example.com:9092"], "topic": "t", "tls": {"ca_file": "/real/ca.pem"},
           "sasl": {"user": secret, "password": secret}}
    data = policy(sinks=SINKS, topology=hop, ray={"temp_dir": "/real/ray"}, collector={"state_dir": "/real/s"})
    choice = judged(data)
    with LocalRunner() as runner:
        (runner.workdir / "state").mkdir()
        files = bundle.of(native.harmless(resolved(data), runner, "http://127.0.0.1:1"), [choice]).files
        text = b"".join(files[path] for path in ("vector/vector.yaml", "aggregator/vector.yaml")).decode()
    assert "127.0.0.1:9" in text
    assert "real.example.com" not in text
    assert "/real/" not in re.sub(r"/node/real/", "/node/", text)


def program(directory: Path, checks: str, starts: str) -> None:
    """A `vector` that does as told when it is asked to validate, and when it is started."""
    script = directory / "vector"
    script.write_text(f'#!/bin/sh\ncase "$1" in validate) {checks};; *) {starts};; esac\n')
    script.chmod(0o755)


RUNS = "echo Vector has started.; exec sleep 60"


@pytest.mark.parametrize(("checks", "starts", "said"), [
    ("exit 0", RUNS, ""),
    ("echo no such option; exit 78", RUNS, "refuses the rendered configuration: no such option"),
    ("exit 3", RUNS, "refuses the rendered configuration: it ended without a word"),
    ("exit 0", "echo not confined; exit 1", "does not run with the rendered configuration: not confined"),
    ("exit 0", "echo Vector has started.; sleep 0.1; exit 0", "does not run with the rendered configuration"),
])
def test_what_the_checker_and_a_start_say(
    checks: str, starts: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, checks, starts)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(native, "_SETTLE_S", 0.3)
    found, code = native.check_natively(resolved(policy()), [judged(policy())])
    assert code == 0
    errors = [d for d in found if d.code == "native-check"]
    assert bool(errors) == bool(said)
    assert not errors or said in errors[0].text
    (note,) = [d for d in found if d.code == "native-unchecked"]
    assert "`vector validate --no-environment --config-yaml vector.yaml`, which does not look at globs" in note.text
    assert ("then started" in note.text) == (not said)


def test_certificates_of_a_node_need_not_be_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "fluentd"
    script.write_text('#!/bin/sh\nfor a; do case "$a" in */fluent.conf) ! grep ca.pem "$a" || exit 1;; esac; done\n'
                      'case "$*" in *--dry-run*) ;; *) echo fluentd worker is now running; exec sleep 60;; esac\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(native, "_SETTLE_S", 0.3)
    data = policy(targets={"fluentd": {"version": "1.19"}}, sinks={"loki": SINKS["loki"]})
    found, code = native.check_natively(resolved(data), [judged(data, "fluentd")])
    assert code == 0
    assert [d.text for d in found if d.code == "native-check"] == []


def test_one_that_never_says_that_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "exit 0", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(native, "_LIMIT_S", 0.3)
    found, code = native.check_natively(resolved(policy()), [judged(policy())])
    assert code == 3
    assert "did not say that it runs" in found[0].text
