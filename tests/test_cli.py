"""The command line: what goes to stdout, what to stderr, and what the exit code says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from making import TREES

import shipgen
from shipgen.cli import main
from shipgen.diagnostics import FORMATS
from shipgen.targets import base

HEAD = 'version: 1\nname: t\ntargets: {vector: {version: "0.57"}}\n'
QUIET = HEAD + "sources: {f: {type: file, paths: [/var/log/a.log]}}\nsinks: {c: {type: console}}\n"
RAY = HEAD + "sources: {ray: {type: ray}}\nsinks: {c: {type: console}}\n"
ROTATED = RAY + "rotation: {by: ray, owner: 'ray:ray'}\n"
WARNS = QUIET.replace(' {version: "0.57"}', " {}")
WRONG = QUIET + "clustr: x\n"
LOGS = TREES / "text" / "session_2026-12-01_05-36-20_156597_11006" / "logs"
COMMANDS = ("init", "validate", "render", "check", "diff", "files", "explain", "preview", "verify", "schema", "targets")


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a policy into an otherwise empty working directory; gives its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "policy.yaml") -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return name

    return write


def run(*arguments: str, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(main, arguments, input=stdin)
    assert result.exit_code == code, (result.stdout[-2000:], result.stderr[-2000:], result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.stderr
    return result


def process(*arguments: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The same in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")}
    return subprocess.run(
        [sys.executable, "-m", "shipgen", *arguments], env={**environment, **env}, capture_output=True, check=False)


# --- help ---


def test_help_teaches() -> None:
    shown = run("--help").stdout
    for command in COMMANDS:
        assert f"  {command} " in shown
    assert "Exit codes: 0 clean; 1" in shown
    assert set(main.commands) == {*COMMANDS, "verl"}
    assert "Usage: main verl level" in run("verl", "level", "-h").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str) -> None:
    result = run(command, "-h")
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"Usage: main {command}")
    assert len(lines[2].strip()) > 20
    for option in main.commands[command].params:
        if option.param_type_name == "option":
            assert getattr(option, "help", ""), f"{command} {option.name}"
    assert {"--format", "--strict"} <= set(re.findall(r"--[a-z]+", result.stdout))


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_reads_well_at_80_columns(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is longer, and no sentence is cut short."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(*command.split(), "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in re.sub(r"[A-Z\]]\.\.\.", "", shown)


def complete(words: str) -> list[str]:
    """What the shell is told to offer."""
    done = process(_SHIPGEN_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1))
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().split()


def test_completion() -> None:
    assert complete("shipgen ex") == ["plain,explain"]
    assert complete("shipgen validate --st") == ["plain,--strict"]
    assert complete("shipgen validate -t fluent") == ["plain,fluentbit", "plain,fluentd"]
    assert complete("shipgen validate --format sa") == ["plain,sarif"]
    assert complete("shipgen validate pol") == ["file,"]
    assert complete("shipgen diff a.yaml b") == ["file,"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_what_help_says_of_completion_works(tmp_path: Path) -> None:
    script = tmp_path / "shipgen"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shipgen "$@"\n')
    script.chmod(0o755)
    (line,) = re.findall(r"^ +(eval .*)$", run("--help").stdout, re.MULTILINE)
    asked = "COMP_WORDS=(shipgen init --fo); COMP_CWORD=2; _shipgen_completion shipgen; echo ${COMPREPLY[@]}"
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", f"{line}; {asked}"], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "--for --format\n", done.stderr


def test_version() -> None:
    assert run("--version").stdout == f"shipgen, version {shipgen.__version__}\n"
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["version"] == shipgen.__version__


@pytest.mark.parametrize("arguments", [
    ("nope",), ("render", "--nope"), ("validate",), ("validate", "p", "--format", "xml"), ("check", "p"),
    ("preview",), ("verify", "p"), ("init", "--for", "x"), ("files", "p", "--root"),
    ("verify", "p", "-t", "vector", "--logs", "/nope"),
])
def test_bad_usage(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, code=2)
    assert result.stdout == ""
    assert "Error: " in result.stderr


# --- init, schema, targets ---


@pytest.mark.parametrize("kind", ["ray", "verl", "file"])
def test_what_init_writes_validates_and_renders(kind: str, at: Callable[[str], str]) -> None:
    text = run("init", "--for", kind)
    assert text.stderr == ""
    name = at(text.stdout)
    run("validate", name)
    run("render", name, "-o", "out")
    run("check", name, "-o", "out")
    run("explain", name)
    assert text.stdout.count("#") > 3


def test_schema_is_a_schema_that_takes_the_policies() -> None:
    result = run("schema")
    assert result.stderr == ""
    schema = json.loads(result.stdout)
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    assert not list(validator(schema).iter_errors(yaml.safe_load(RAY)))
    assert list(validator(schema).iter_errors(yaml.safe_load(WRONG)))


def test_targets() -> None:
    result = run("targets")
    assert result.stderr == ""
    assert all(f"{name}: " in result.stdout for name in base.NAMES)
    assert "versions 0.50 to 0.57" in result.stdout
    assert isinstance(json.loads(run("targets", "--format", "json").stdout), list | dict)


# --- validate ---


def test_validate(at: Callable[[str], str]) -> None:
    result = run("validate", at(QUIET), "-t", "vector")
    assert result.stdout == "no findings\n"
    assert result.stderr == ""
    others = run("validate", at(QUIET)).stdout
    for name in ("filebeat", "promtail"):
        assert re.search(rf"note: sinks\.c: {name}: can't express this policy.*\[other-target\]\n", others)
    assert others.endswith("\n2 notes\n")
    result = run("validate", at(WARNS))
    assert "warning: targets.vector: vector: no version given" in result.stdout
    assert result.stdout.startswith("policy.yaml:3:")
    assert run("validate", at(WARNS), "--strict", code=1).stdout == result.stdout
    result = run("validate", at(WRONG), code=1)
    assert re.search(r"policy\.yaml:6:\d+: error: clustr: .*did you mean `cluster`", result.stdout)
    assert result.stderr == ""


def test_validate_reads_stdin() -> None:
    assert run("validate", "-", "-t", "vector", stdin=QUIET).stdout == "no findings\n"
    assert "<stdin>:6:" in run("validate", "-", stdin=WRONG, code=1).stdout
    assert "standard input can be read only once" in run("validate", "-", "-", stdin=RAY, code=2).stderr


def test_validate_merges_files(at: Callable[..., str]) -> None:
    one, two = at(QUIET, "a.yaml"), at("cluster: x\nsinks: {c: null, d: {type: nope}}\n", "b.yaml")
    result = run("validate", one, two, code=1)
    assert "b.yaml:2:" in result.stdout
    assert "sinks.d.type" in result.stdout


@pytest.mark.parametrize(("name", "said"), [
    ("missing.yaml", "no such file"), (".", "directory"), ("\udcff.yaml", "no such file"),
])
def test_unreadable_policies(name: str, said: str, at: Callable[[str], str]) -> None:
    at(RAY)
    for command in ("validate", "render", "explain", "files"):
        result = run(command, name, code=2)
        assert said in result.stderr.lower()
        assert result.stdout == ""


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize(("text", "code"), [(QUIET, 0), (WARNS, 0), (WRONG, 1)])
def test_formats_of_findings(style: str, text: str, code: int, at: Callable[[str], str]) -> None:
    """On stdout for validate and check, else on stderr; each is well-formed, whatever was found."""
    name = at(text)
    findings = 0 if text == QUIET else 1
    for command, product in (("validate", True), ("render", False)):
        result = run(command, name, "--target", "vector", "--format", style, code=code)
        report = result.stdout if product else result.stderr
        if style == "json":
            assert len(json.loads(report)["diagnostics"]) == findings
        elif style == "sarif":
            assert len(json.loads(report)["runs"][0]["results"]) == findings
        elif style == "junit":
            assert len(ET.fromstring(report).findall(".//testcase")) == 1
        elif style == "github":
            assert report.count("::error" if code else "::warning") == findings
        elif not product and not findings:
            assert report == ""
        if not product and code:
            assert result.stdout == ""


def test_targets_that_are_asked_for(at: Callable[[str], str]) -> None:
    name = at(RAY)
    assert "no target is called 'nope'; there are: vector" in run("validate", name, "-t", "nope", code=2).stderr
    assert "no target is called 'nope'" in run("validate", name, "-t", "all", "-t", "nope", code=2).stderr
    for later in set(base.NAMES) - set(base.implemented()):
        assert f"targets.{later}: {later}: not rendered yet" in run("validate", name, "-t", later, code=1).stdout


def test_native_check_without_the_binary(at: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")  # docker leaves a Unix socket open where none answers
    result = run("validate", at(ROTATED), "--native", code=3)
    assert "not checked: there is no `vector` on PATH, and no Docker engine that has timberio/vector:" in result.stdout


# --- render ---


def test_render_to_stdout(at: Callable[[str], str]) -> None:
    result = run("render", at(ROTATED))
    assert result.stdout.startswith("# Generated by shipgen from policy.yaml, for Vector 0.57. Do not edit.\n")
    assert yaml.safe_load(result.stdout)["sinks"]["out::c"]["type"] == "console"
    assert result.stderr.endswith("companion files, written with -o DIR: logrotate/ray, ray/README.md, ray/ray.env, "
                                  "tmpfiles.d/ray.conf\n")
    assert run("render", at(QUIET)).stderr == ""
    assert [p.name for p in Path().iterdir()] == ["policy.yaml"]


def test_render_to_stdout_takes_one_target(at: Callable[[str], str]) -> None:
    two = next(name for name in base.NAMES if name != "vector")
    for arguments in (("-t", "vector", "-t", two), ("-t", two, "-t", "vector")):
        result = run("render", at(RAY), *arguments, code=2)
        assert result.stdout == ""
        assert "one target is written to stdout" in result.stderr
    none = RAY.replace('targets: {vector: {version: "0.57"}}\n', "")
    assert "no target: give --target" in run("render", at(none), code=2).stderr
    assert run("render", at(none), "-t", "vector").stdout


def test_render_to_a_directory(at: Callable[[str], str]) -> None:
    result = run("render", at(ROTATED), "-o", "a/b")
    assert result.stdout == ""
    assert result.stderr == "a/b: 6 of 6 files written\n"
    assert run("render", at(ROTATED), "-o", "a/b").stderr == "a/b: up to date\n"
    assert run("render", at(QUIET), "-o", "a/b").stderr == "a/b: 2 of 2 files written\n"
    assert sorted(str(p) for p in Path("a").rglob("*.*")) == ["a/b/MANIFEST.json", "a/b/vector/vector.yaml"]


@pytest.mark.parametrize(("text", "arguments", "code"), [
    (WRONG, (), 1), (WARNS, ("--strict",), 1), (RAY, ("-t", "nope"), 2),
    (RAY.replace("console", "console, when: {message: {matches: '(?=x)'}}"), (), 1),
    (QUIET + "collector: {metrics: {bind: localhost}}\n", (), 1), ("name: [", (), 1), ("", (), 1), ("\0", (), 2),
    ("&a [*a]", (), 1), ("a: " * 3000, (), 1), ("[" * 30000, (), 1),
])
def test_a_failed_render_writes_nothing(
    text: str, arguments: tuple[str, ...], code: int, at: Callable[[str], str]
) -> None:
    name = at(text)
    result = run("render", name, *arguments, "-o", "out", code=code)
    assert result.stdout == ""
    assert result.stderr
    assert [p.name for p in Path().iterdir()] == ["policy.yaml"]


def test_render_into_a_place_that_is_none(at: Callable[[str], str]) -> None:
    name = at(RAY)
    Path("file").write_text("")
    assert "file" in run("render", name, "-o", "file", code=2).stderr
    assert "file" in run("render", name, "-o", "file/out", code=2).stderr


def test_all_targets(at: Callable[[str], str]) -> None:
    """Every one that can express the policy; what is left out is named."""
    result = run("render", at(RAY), "-t", "all", "-o", "out")
    manifest = json.loads(Path("out/MANIFEST.json").read_text())
    assert "vector" in manifest["targets"]
    for name in base.NAMES:
        if name not in manifest["targets"]:
            assert f"{name} is left out: " in result.stderr
    run("check", at(RAY), "-o", "out")
    refused = RAY + "collector: {metrics: {bind: localhost}}\n"
    if len(base.implemented()) == 1:
        run("render", at(refused), "-t", "all", "-o", "out", code=1)


# --- check ---


def test_check(at: Callable[[str], str]) -> None:
    name = at(ROTATED)
    run("render", name, "-o", "out")
    result = run("check", name, "-o", "out")
    assert "error" not in result.stdout
    assert result.stderr == ""
    before = {p: p.read_bytes() for p in Path("out").rglob("*") if p.is_file()}

    Path("out/ray/ray.env").write_text("edited\n")
    Path("out/ray/README.md").unlink()
    result = run("check", name, "-o", "out", code=1)
    assert "out/ray/ray.env:1:1: error: ray/ray.env was edited after it was rendered" in result.stdout
    assert "error: ray/README.md is missing" in result.stdout
    assert "-edited\n" in result.stdout
    assert result.stdout.endswith("out: 2 of 6 files differ from the policy (1 edited, 1 missing)\n")
    again = result.stdout.partition("render again: shipgen ")[2].partition(" [")[0]
    assert result.stderr == ""
    assert Path("out/ray/ray.env").read_text() == "edited\n"
    assert not Path("out/ray/README.md").exists()
    found = json.loads(run("check", name, "-o", "out", "--format", "json", code=1).stdout)
    drifts = [d for d in found["diagnostics"] if d["severity"] == "error"]
    assert {d["code"] for d in drifts} == {"drift"}
    assert {Path(d["file"]).name for d in drifts} == {"ray.env", "README.md"}
    assert "-edited\n" in drifts[1]["detail"]
    assert found["summary"].startswith("out: 2 of 6 files")
    said = run("check", name, "-o", "out", "--format", "github", code=1).stdout.splitlines()
    assert said[0] == "::error title=summary::out: 2 of 6 files differ from the policy (1 edited, 1 missing)"
    assert said[2].startswith("::error file=out/ray/ray.env,line=1,col=1,title=drift::ray/ray.env was edited")
    assert "%0A-edited%0A" in said[2]
    run(*again.split())
    clean = run("check", name, "-o", "out", "--format", "github").stdout
    assert clean == "::notice title=summary::out: all 6 files are what the policy renders\n"

    for path, data in before.items():
        path.write_bytes(data)
    result = run("check", at(RAY), "-o", "out", code=1)
    assert "logrotate/ray is listed in MANIFEST.json and no longer rendered" in result.stdout


def test_check_needs_to_know_the_targets(at: Callable[[str], str]) -> None:
    name = at(RAY)
    assert "no MANIFEST.json" in run("check", name, "-o", "none", code=2).stderr
    assert "is missing" in run("check", name, "-o", "none", "-t", "vector", code=1).stdout
    assert not Path("none").exists()
    Path("bad").mkdir()
    Path("bad/MANIFEST.json").write_text("{}")
    assert "not a manifest" in run("check", name, "-o", "bad", code=2).stderr


def test_check_of_a_wrong_policy(at: Callable[[str], str]) -> None:
    run("render", at(RAY), "-o", "out")
    result = run("check", at(WRONG), "-o", "out", code=1)
    assert "error: clustr" in result.stdout
    assert run("check", at(WARNS), "-o", "out", "--strict", code=1).stdout


# --- diff ---


def test_diff(at: Callable[..., str]) -> None:
    old, new = at(RAY, "old.yaml"), at(RAY.replace("name: t", "name: u"), "new.yaml")
    result = run("diff", old, new)
    assert result.stderr == ""
    assert result.stdout.startswith("2 changes (read again); 1 file of the bundle\n")
    assert "Source ray\n----------\n- read again: everything by vector, from the beginning: " in result.stdout
    assert '-data_dir: "/var/lib/shipgen/t/vector"\n+data_dir: "/var/lib/shipgen/u/vector"\n' in result.stdout
    assert "\n-# " not in result.stdout  # that the headers name another file is no change
    assert "@@" not in run("diff", old, new, "--no-text").stdout
    run("diff", old, new, "--exit-code", code=1)
    run("diff", old, new, "--strict", code=1)
    same = run("diff", old, old, "--exit-code", "--strict")
    assert same.stdout == "the two policies mean the same, and so do their files\n"
    assert "promtail/promtail.yaml" not in run("diff", old, new, "-t", "vector").stdout
    assert run("diff", "-", new, stdin=RAY).stdout == result.stdout


def test_diff_of_overlays(at: Callable[..., str]) -> None:
    base, prod, odd = at(RAY, "base.yaml"), at("cluster: prod\n", "prod.yaml"), at(RAY, "a+b.yaml")
    assert "`cluster` is `prod`, was not set" in run("diff", base, f"{base}+{prod}").stdout
    assert "the same" in run("diff", f"{base}+{prod}", f"{base}+{prod}").stdout
    assert "the same" in run("diff", base, odd).stdout
    assert "nope.yaml: no such file" in run("diff", base, f"{base}+nope.yaml", code=2).stderr


def test_diff_in_every_format(at: Callable[..., str]) -> None:
    old, new = at(RAY, "old.yaml"), at(RAY.replace("name: t", "name: u"), "new.yaml")
    document = json.loads(run("diff", old, new, "--format", "json").stdout)
    assert set(document) == {"summary", "changes", "files", "findings"}
    assert [c["kind"] for c in document["changes"]] == ["renamed", "read again"]
    said = run("diff", old, new, "--format", "github").stdout.splitlines()
    assert said[0] == "::warning title=summary::2 changes (read again); 1 file of the bundle"
    assert said[1].startswith("::notice file=new.yaml,line=2,col=7,title=policy-change::name: renamed: `t` is `u` now")
    results = json.loads(run("diff", old, new, "--format", "sarif").stdout)["runs"][0]["results"]
    assert {"rereads-files", "policy-change"} <= {r["ruleId"] for r in results}
    ET.fromstring(run("diff", old, new, "--format", "junit").stdout)


def test_diff_of_what_is_wrong(at: Callable[..., str]) -> None:
    old, wrong = at(RAY, "old.yaml"), at(WRONG, "wrong.yaml")
    for pair in ((old, wrong), (wrong, old)):
        result = run("diff", *pair, code=1)
        assert result.stdout == ""
        assert "wrong.yaml:6:1: error: clustr" in result.stderr
    refused = at(RAY.replace("vector: {version: \"0.57\"}", "promtail: {version: \"3.6\"}"), "console.yaml")
    result = run("diff", old, refused, code=1)
    assert "promtail: Promtail" in result.stderr
    assert "no target that can express both, so no files" in result.stdout
    assert "read only once" in run("diff", "-", "-", code=2, stdin=RAY).stderr


# --- files ---


def test_files(at: Callable[[str], str]) -> None:
    name = at(ROTATED + f"ray: {{temp_dir: {TREES / 'text'}}}\n")
    result = run("files", name)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert len(rows) > 100
    assert all(len(row) == 2 for row in rows)
    assert {"ray: raylet", "ray: worker"} <= {what for _, what in rows}
    assert not [path for path, _ in rows if "session_latest" in path]
    assert "error" not in result.stderr


def test_strays_fail(at: Callable[[str], str], tmp_path: Path) -> None:
    logs = tmp_path / "node/tmp/ray/session_2026/logs"
    logs.mkdir(parents=True)
    (logs / "raylet.out").write_text("")
    (logs / "novelty.log").write_text("")
    result = run("files", at(ROTATED), "--root", "node", code=1)
    assert "novelty.log\tnobody" in result.stdout
    assert "error" in result.stderr
    assert "novelty.log: nobody ships this file" in result.stderr
    assert "raylet" not in result.stderr


# --- explain ---


def test_explain(at: Callable[[str], str]) -> None:
    assert "console" in run("explain", at(WARNS), "--strict").stdout
    result = run("explain", at(RAY))
    assert "nothing bounds the files of" in result.stderr
    assert run("explain", at(WRONG), code=1).stdout == ""
    unsupported = RAY.replace("{type: console}", "{type: loki, endpoint: http://l, buffer: {when_full: drop_oldest}}")
    assert "cannot drop its oldest records" in run("explain", at(unsupported)).stdout


# --- preview ---


def test_preview_of_recorded_files(at: Callable[[str], str]) -> None:
    result = run("preview", at(ROTATED), str(LOGS / "raylet.out"), str(LOGS / "dashboard.log"))
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert {r["component"] for r in records} == {"raylet", "dashboard"}
    assert len(records) > 100
    assert all(next(iter(r)) == "time" for r in records)
    assert records[0]["session"] == "session_2026-12-01_05-36-20_156597_11006"
    assert "grouped in Python" in result.stderr
    assert "warning" not in result.stderr


def test_preview_of_stdin(at: Callable[[str], str]) -> None:
    line = "[2026-12-01 05:36:23,438 W 11309 11319] (raylet) a.cc:1: low\n"
    name = at(ROTATED + "parsing: {timezone: UTC}\n")
    (record,) = map(json.loads, run("preview", name, "-", "--as", "raylet.out", stdin=line).stdout.splitlines())
    assert record == {
        "time": "2026-12-01T05:36:23.438000000Z", "component": "raylet", "level": "warn", "message": "low",
        "pid": "11309", "thread": "11319", "caller": "a.cc:1", "file": "raylet.out", "source": "ray",
        "node": record["node"], "raw": line.strip()}
    worker = f"worker-{'a' * 56}-01000000-7.err"
    (record,) = map(json.loads, run("preview", name, "-", "--as", f"old/{worker}", stdin="x\n").stdout.splitlines())
    assert (record["file"], record["stream"], record["job_id"]) == (worker, "err", "01000000")


def test_preview_of_what_is_not_read(at: Callable[[str], str]) -> None:
    name = at(RAY)
    assert "--as" in run("preview", name, "-", stdin="x\n", code=2).stderr
    assert "--as" in run("preview", name, "/etc/hostname", code=2).stderr
    assert "No such file" in run("preview", name, "raylet.out", code=2).stderr
    assert "no log file given" in run("preview", name, code=2).stderr
    assert "no target is called 'all'" in run("preview", name, "-", "-t", "all", stdin="x\n", code=2).stderr
    assert "no target is called 'all'" in run("verify", name, "-t", "all", code=2).stderr
    assert run("preview", at(WRONG), str(LOGS / "raylet.out"), code=1).stdout == ""


def test_preview_says_what_it_leaves_out(at: Callable[[str], str]) -> None:
    rules = (
        "parsing: {rules: [{name: some, sample: 0.5}, {name: own, drop: true, sinks: [c], when: {level: info}}, "
        "{name: tok, redact: {pattern: Setting}}, {name: quiet, when: {level: debug}, drop: true}]}\n"
    )
    result = run("preview", at(ROTATED + rules + "\n"), str(LOGS / "raylet.out"))
    assert "since they work on a stream: some" in result.stderr
    assert "since they hold for some sinks only" not in result.stderr or "own" in result.stderr
    assert "Setting cluster" not in result.stdout
    assert "[redacted]" in result.stdout


# --- secrets ---


SECRET = "s3cr3t-hunter2"


@pytest.mark.parametrize("loki", [
    {"auth": {"bearer": SECRET}}, {"auth": {"bearer": {"token": SECRET}}},
    {"auth": {"basic": {"user": SECRET, "password": SECRET}}}, {"auth": SECRET},
    {"auth": {"bearer": {"env": f"$({SECRET})"}}}, {"auth": {SECRET: {"env": "A"}}},
    {"endpoint": f"https://user:{SECRET}@loki"}, {"auth": {"bearer": [SECRET]}},
])
@pytest.mark.parametrize("style", FORMATS)
def test_secrets_are_never_shown(loki: dict[str, Any], style: str, at: Callable[[str], str]) -> None:
    data = {**yaml.safe_load(RAY), "sinks": {"loki": {"type": "loki", "endpoint": "http://l", **loki}}}
    name = at(json.dumps(data))
    for command in ("validate", "render", "explain", "files"):
        result = run(command, name, "--format", style, code=1)
        assert SECRET not in result.output


# --- processes ---


def test_the_console_script_and_the_module_are_the_same() -> None:
    done = process("--version")
    assert done.stdout.decode() == f"shipgen, version {shipgen.__version__}\n"


def test_nothing_heavy_is_imported_before_it_is_needed(at: Callable[[str], str]) -> None:
    code = (
        "import sys; from shipgen.cli import main; main(['render', 'policy.yaml'], standalone_mode=False); "
        "print(sorted({'docker', 'vrl_python', 're2', 'onigurumacffi', 'asyncio', 'requests'} "
        "& set(sys.modules)), file=sys.stderr)"
    )
    at(RAY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("env", [
    {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}, {},
])
def test_stdout_is_utf8_whatever_the_locale(env: dict[str, str], at: Callable[[str], str]) -> None:
    name = at(RAY.replace("name: t", "name: t\ncluster: 'é日😀'"))
    done = process("render", name, **env)
    assert done.returncode == 0
    assert "é日😀" in done.stdout.decode()
    wrong = at(RAY.replace("name: t", "name: t\nclüster: 'é日'"))
    done = process("validate", wrong, **env)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"ster" in done.stdout


@pytest.mark.parametrize("command", [
    "schema", "render policy.yaml", "explain policy.yaml", "validate policy.yaml", "--help", "verify --help",
])
def test_a_reader_that_goes_away(command: str, at: Callable[[str], str]) -> None:
    at(ROTATED)
    with subprocess.Popen(
        [sys.executable, "-m", "shipgen", *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout
        assert running.stderr
        running.stdout.close()
        said = running.stderr.read()
        running.wait(60)
    assert b"Traceback" not in said
    assert b"Exception" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", [
    "schema", "render policy.yaml", "validate policy.yaml", "validate wrong.yaml", "--help", "--version",
    "render --help", "diff policy.yaml policy.yaml",
])
def test_a_full_disk_under_stdout(command: str, at: Callable[..., str]) -> None:
    at(QUIET)
    at(WRONG, "wrong.yaml")
    argv = [sys.executable, "-m", "shipgen", *command.split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: standard output: No space left on device\n")


def test_color_on_a_terminal_alone(at: Callable[[str], str]) -> None:
    import pty

    name = at(WRONG)
    for env, colored in (({"TERM": "xterm"}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        terminal, end = pty.openpty()
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        argv = [sys.executable, "-m", "shipgen", "validate", name]
        subprocess.run(argv, stdout=end, stderr=end, env={**environment, **env}, check=False)
        os.close(end)
        said = os.read(terminal, 4096)
        os.close(terminal)
        assert (b"\x1b[" in said) == colored
    assert b"\x1b[" not in process("validate", name).stdout


def test_no_color(at: Callable[[str], str]) -> None:
    assert "\033[" not in run("validate", at(WARNS)).stdout
