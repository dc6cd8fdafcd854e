"""Sinks other than Loki on real shippers: every field of every record, as it arrives in a server of its protocol."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from receivers.base import Receiver, Record
from receivers.certificates import Certificates
from receivers.kafka import BrokerServer
from receivers.web import LinesServer, LokiDoor, ObjectServer, SearchServer
from sinks import Job, differences, prepare

from shipgen.harness.loki import LokiClient
from shipgen.harness.runners import LocalRunner
from shipgen.targets import base

SMALL = {"batch": {"max_bytes": "64KiB", "max_wait": "1s"}}


@dataclass(frozen=True)
class Kind:
    """A sink with its receiver. ``settings`` are those that say where it is."""

    name: str
    receiver: Callable[[], Any]
    settings: Callable[[Any], dict[str, Any]]
    time: str = "time"
    env: Mapping[str, str] = field(default_factory=dict)


def _s3(server: ObjectServer) -> dict[str, Any]:
    keys = {"access_key_id": {"env": "S3_KEY"}, "secret_access_key": {"env": "S3_SECRET"}}
    return {"type": "s3", "bucket": "ray-logs", "endpoint": server.url(), "path_style": True, "credentials": keys}


KINDS = {kind.name: kind for kind in (
    Kind("http", lambda: LinesServer(headers={"X-Team": "a b", "X-Key": "k==", "Authorization": "Bearer t/+x"}),
         lambda s: {"type": "http", "endpoint": s.url("/logs"), "compression": "gzip", "auth": {"bearer": {"env": "T"}},
                    "headers": {"X-Team": "a b", "X-Key": {"env": "K"}}}, env={"T": "t/+x", "K": "k=="}),
    Kind("elasticsearch", lambda: SearchServer("ApiKey YWJj=="),
         lambda s: {"type": "elasticsearch", "endpoints": [s.url()], "auth": {"api_key": {"env": "ES_KEY"}}},
         "@timestamp", {"ES_KEY": "YWJj=="}),
    Kind("opensearch", lambda: SearchServer("Basic dTpwJHciJ1wjIHg="),
         lambda s: {"type": "opensearch", "endpoints": [s.url()], "index": {"name": "ray-logs"},
                    "auth": {"basic": {"user": {"env": "OS_USER"}, "password": {"env": "OS_PASSWORD"}}}},
         "@timestamp", {"OS_USER": "u", "OS_PASSWORD": "p$w\"'\\# x"}),
    Kind("s3", lambda: ObjectServer("ray-logs", "AK", "s3cr3t/+x"), _s3,
         env={"S3_KEY": "AK", "S3_SECRET": "s3cr3t/+x"}),
    Kind("kafka", lambda: BrokerServer({"ray-logs"}),
         lambda s: {"type": "kafka", "brokers": [s.address], "topic": "ray-logs", "key": "node",
                    "compression": "gzip"}),
)}


@pytest.fixture(params=base.implemented())
def target(request: pytest.FixtureRequest) -> str:
    """A target whose shipper is on this machine."""
    name: str = request.param
    program = base.get(name).binary
    if shutil.which(program) is None:
        reason = f"there is no `{program}` on PATH"
        (pytest.fail if request.config.getoption("--require-shippers") else pytest.skip)(reason)
    return name


@pytest.fixture
def runner() -> Iterator[LocalRunner]:
    """Programs of this machine."""
    with LocalRunner() as local:
        yield local


Start = Callable[..., Job]


@pytest.fixture
def start(target: str, runner: LocalRunner, tmp_path: Path) -> Iterator[Start]:
    """Starts a job; stops it at the end."""
    jobs: list[Job] = []

    def start(sink: dict[str, Any], tree: str, env: Mapping[str, str], **parts: Any) -> Job:
        try:
            job = prepare(target, {"out": sink}, tree, tmp_path, runner, env, **parts)
        except LookupError as reason:
            pytest.skip(str(reason))
        jobs.append(job)
        job.start()
        return job

    yield start
    for job in jobs:
        if job.shipper:
            job.shipper.kill()


def right(job: Job, receiver: Receiver, time_key: str = "time") -> list[Record]:
    """Everything that is expected arrived, once, with every field as it should be; gives it."""
    expected = job.expected()
    job.settle(receiver, len(expected))
    job.stop()
    assert receiver.problems == []
    assert differences(expected, receiver.records, time_key) == {"missing": [], "surplus": []}, job.log()[-2000:]
    assert expected
    return expected


@pytest.mark.parametrize("name", KINDS)
def test_every_record_arrives(start: Start, name: str) -> None:
    kind = KINDS[name]
    with kind.receiver() as receiver:
        job = start({**kind.settings(receiver), **SMALL}, "json", kind.env)
        right(job, receiver, kind.time)
        OWN[name](receiver)


def _streams(receiver: SearchServer) -> None:
    assert set(receiver.indices) == {"logs-ray-default"}


def _indices(receiver: SearchServer) -> None:
    for record, index in zip(receiver.records, receiver.indices, strict=True):
        assert index == "ray-logs-" + record["@timestamp"][:10].replace("-", ".")


def _objects(receiver: ObjectServer) -> None:
    for record, key in zip(receiver.records, receiver.keys, strict=True):
        folders, _, file = key.rpartition("/")
        assert folders == f"component={record['component']}/date={record['time'][:10]}"
        assert record["node"] in file
        assert file.endswith(".jsonl.gz")


def _keys(receiver: BrokerServer) -> None:
    assert receiver.acks == {-1}
    for message, record in zip(receiver.messages, receiver.records, strict=True):
        assert (message.key or b"").decode() == record["node"]
        # the time of the message is that of sending: by an older one a broker would throw it away at once
        assert abs(message.timestamp / 1000 - datetime.now(UTC).timestamp()) < 600


OWN: dict[str, Callable[[Any], None]] = {
    "http": lambda _: None, "elasticsearch": _streams, "opensearch": _indices, "s3": _objects, "kafka": _keys,
}


def test_a_condition_and_rules_hold(start: Start) -> None:
    kind = KINDS["http"]
    with kind.receiver() as receiver:
        rules = [{"name": "team", "add": {"team": "rl 'infra'"}}]
        sink = {**kind.settings(receiver), **SMALL, "when": {"level": {"at_least": "warn"}}}
        job = start(sink, "json", kind.env, parsing={"timezone": "UTC", "rules": rules})
        expected = [{**one, "team": "rl 'infra'"} for one in job.expected()]
        job.settle(receiver, len(expected))
        job.stop()
        assert differences(expected, receiver.records) == {"missing": [], "surplus": []}


def test_folders_by_hour_and_by_fields_that_may_be_absent(start: Start) -> None:
    kind = KINDS["s3"]
    with kind.receiver() as receiver:
        prefix = {"by": ["file", "pid"], "date": "hourly"}
        job = start({**kind.settings(receiver), **SMALL, "prefix": prefix, "compression": "none"}, "text-worker-node",
                    kind.env)
        right(job, receiver)
        for record, key in zip(receiver.records, receiver.keys, strict=True):
            folder = f"file={record['file'].replace('/', '%2F')}/pid={record.get('pid', '__HIVE_DEFAULT_PARTITION__')}"
            assert key.startswith(f"{folder}/date={record['time'][:10]}/hour={record['time'][11:13]}/")
            assert key.endswith(".jsonl")


@pytest.mark.parametrize(("name", "answers"), [
    ("http", (503, 429)), ("elasticsearch", (503, 429)), ("s3", (503, 500)),
])
def test_a_server_in_trouble_is_waited_for(start: Start, name: str, answers: tuple[int, ...]) -> None:
    kind = KINDS[name]
    with kind.receiver() as receiver:
        receiver.faults.answers = [(code, b"{}") for code in answers]
        receiver.faults.methods = {"POST", "PUT"}
        job = start({**kind.settings(receiver), **SMALL}, "text-worker-node", kind.env)
        right(job, receiver, kind.time)
        assert receiver.faults.answers == []


def test_what_waits_for_its_object_survives_a_kill(start: Start) -> None:
    """It then goes into the folder where it belongs. What was on its way may come twice."""
    kind = KINDS["s3"]
    with kind.receiver() as receiver:
        receiver.faults.answers = [(503, b"")] * 100_000
        receiver.faults.methods = {"PUT"}
        job = start({**kind.settings(receiver), **SMALL}, "text-worker-node", kind.env)
        time.sleep(5)
        assert job.shipper
        job.shipper.kill()
        receiver.faults.answers = []
        job.shipper = None
        job.start()
        expected = job.expected()
        job.settle(receiver, len(expected))
        job.stop()
        assert receiver.problems == []
        assert differences(expected, receiver.records)["missing"] == []
        _objects(receiver)


def test_documents_that_a_full_server_turns_away_come_again(start: Start) -> None:
    turned_away: set[str] = set()

    def item(document: Record) -> int:
        again = document["raw"] in turned_away or len(document["raw"]) % 3
        turned_away.add(document["raw"])
        return 201 if again else 429

    with SearchServer(item=item) as receiver:
        sink = {"type": "elasticsearch", "endpoints": [receiver.url()], **SMALL, "delivery": "at_least_once"}
        job = start(sink, "text-worker-node", {})
        right(job, receiver, "@timestamp")
        assert turned_away


def test_a_broker_that_moves_is_followed(start: Start) -> None:
    with BrokerServer({"ray-logs"}) as receiver:
        receiver.errors = [6, 7, 19]  # not the leader, timed out, too few replicas
        job = start({**KINDS["kafka"].settings(receiver), **SMALL}, "text-worker-node", {})
        right(job, receiver)
        assert receiver.errors == []


def test_a_topic_may_come_later(start: Start) -> None:
    with BrokerServer(set()) as receiver:
        job = start({**KINDS["kafka"].settings(receiver), **SMALL}, "text-worker-node", {})
        job.settle(receiver, 1, limit_s=5)
        assert receiver.count() == 0
        receiver.topics.add("ray-logs")
        right(job, receiver)


@pytest.mark.parametrize("name", ["http", "elasticsearch", "s3", "kafka"])
def test_tls_with_a_certificate_of_the_client(start: Start, name: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    kind = KINDS[name]
    with kind.receiver() as receiver:
        receiver.use(certificates.server(wants_client=True))
        files = {"ca_file": certificates.path("ca.pem"), "cert_file": certificates.path("client.pem"),
                 "key_file": certificates.path("client.key")}
        job = start({**kind.settings(receiver), **SMALL, "tls": files}, "text-worker-node", kind.env)
        right(job, receiver, kind.time)


@pytest.mark.parametrize("name", ["http", "elasticsearch", "s3", "kafka"])
def test_an_unknown_server_gets_nothing(start: Start, target: str, name: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates", names="DNS:elsewhere.example")
    kind = KINDS[name]
    with kind.receiver() as receiver:
        receiver.use(certificates.server())
        sink = {**kind.settings(receiver), **SMALL, "tls": {"ca_file": certificates.path("ca.pem")}}
        job = start(sink, "text-worker-node", kind.env)
        job.settle(receiver, 1, limit_s=6)
        if (target, name) == ("fluentbit", "s3"):
            assert receiver.count()
            assert any("not for whom" in d.message for d in job.choice.diagnostics)
        else:
            assert receiver.count() == 0
            assert name == "s3" or re.search(r"(?i)certificate|hostname|x509|ssl", job.log())


def test_sasl(start: Start) -> None:
    with BrokerServer({"ray-logs"}, plain=("u", "p$w\"'\\# x")) as receiver:
        sasl = {"mechanism": "PLAIN", "user": {"env": "K_USER"}, "password": {"env": "K_PASSWORD"}}
        job = start({**KINDS["kafka"].settings(receiver), **SMALL, "sasl": sasl}, "text-worker-node",
                    {"K_USER": "u", "K_PASSWORD": "p$w\"'\\# x"})
        right(job, receiver)


HOSTILE = "it's \"q\" #{x} $HOME $$ {{ y }} %Y %% @z [a] & *"


def test_text_of_settings_is_data(start: Start) -> None:
    with LinesServer(headers={"X-Team": HOSTILE}) as receiver:
        sink = {"type": "http", "endpoint": receiver.url("/logs"), "headers": {"X-Team": HOSTILE}, **SMALL}
        rules = [{"name": "team", "add": {"team": f"{HOSTILE} \\ é日"}}]
        job = start(sink, "text-worker-node", {}, cluster=f"c {HOSTILE}", parsing={"timezone": "UTC", "rules": rules})
        expected = [{**one, "team": f"{HOSTILE} \\ é日", "cluster": f"c {HOSTILE}"} for one in job.expected()]
        job.settle(receiver, len(expected))
        job.stop()
        assert receiver.problems == []
        assert differences(expected, receiver.records) == {"missing": [], "surplus": []}, job.log()[-2000:]


def test_text_in_the_keys_of_objects_is_quoted(start: Start) -> None:
    kind = KINDS["s3"]
    with kind.receiver() as receiver:
        sink = {**kind.settings(receiver), **SMALL, "prefix": {"by": ["cluster"], "date": "none"}}
        job = start(sink, "text-worker-node", kind.env, cluster=f"c/{HOSTILE}")
        expected = [{**one, "cluster": f"c/{HOSTILE}"} for one in job.expected()]
        job.settle(receiver, len(expected))
        job.stop()
        assert receiver.problems == []
        assert differences(expected, receiver.records) == {"missing": [], "surplus": []}, job.log()[-2000:]
        assert {unquote(key.split("/")[0]) for key in receiver.keys} == {f"cluster=c/{HOSTILE}"}


LOKI = {"type": "loki", "tenant": "team-a", **SMALL}


def arrives(job: Job, door: LokiDoor) -> None:
    """All of the job's records come through the door into Loki, each file's as many as it has."""
    client, expected = LokiClient(door.loki, "team-a"), job.expected()
    deadline = time.monotonic() + 60
    while client.received() < len(expected) and time.monotonic() < deadline:
        time.sleep(0.3)
    job.stop()
    assert door.problems == []
    entries = client.read_all(start_ns=time.time_ns() - 86_400 * 10**9)
    assert Counter(entry.place for entry in entries) == Counter((r["session"], r["file"]) for r in expected), job.log()


@pytest.mark.parametrize(("auth", "header"), [
    ({"bearer": {"env": "TOKEN"}}, "Bearer t/+x=="),
    ({"bearer": {"file": "token"}}, "Bearer t/+x=="),
    ({"basic": {"user": {"env": "USER_OF_LOKI"}, "password": {"env": "PASSWORD"}}}, "Basic dTpwJHciJ1wjIHg="),
    ({"basic": {"user": {"file": "user"}, "password": {"file": "password"}}}, "Basic dTpwJHciJ1wjIHg="),
    ({}, None),
], ids=["bearer", "bearer of a file", "basic", "basic of files", "none"])
def test_loki_knows_who_writes(
    start: Start, runner: LocalRunner, tmp_path: Path, auth: dict[str, Any], header: str | None
) -> None:
    secrets = {"TOKEN": "t/+x==", "USER_OF_LOKI": "u", "PASSWORD": "p$w\"'\\# x"}
    for name, value in (("token", "TOKEN"), ("user", "USER_OF_LOKI"), ("password", "PASSWORD")):
        (tmp_path / name).write_text(secrets[value])
    with LokiDoor(runner.start_loki(tenants=True).url, {"Authorization": header, "X-Scope-OrgID": "team-a"}) as door:
        sink = {**LOKI, "endpoint": door.url(), **({"auth": placed(auth, tmp_path)} if auth else {})}
        arrives(start(sink, "text-worker-node", secrets), door)


def placed(auth: Any, directory: Path) -> Any:
    """Settings whose files are in a directory."""
    if not isinstance(auth, dict):
        return auth
    return {k: str(directory / v) if k == "file" else placed(v, directory) for k, v in auth.items()}


def test_loki_over_tls_with_a_certificate_of_the_client(start: Start, runner: LocalRunner, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    with LokiDoor(runner.start_loki(tenants=True).url, {"X-Scope-OrgID": "team-a"}) as door:
        door.use(certificates.server(wants_client=True))
        files = {"ca_file": certificates.path("ca.pem"), "cert_file": certificates.path("client.pem"),
                 "key_file": certificates.path("client.key")}
        arrives(start({**LOKI, "endpoint": door.url(), "tls": files}, "text-worker-node", {}), door)


def test_a_loki_that_nobody_vouches_for_gets_nothing(start: Start, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates", names="DNS:elsewhere.example")
    with LokiDoor("http://127.0.0.1:1", {}) as door:
        door.use(certificates.server())
        sink = {**LOKI, "endpoint": door.url(), "tls": {"ca_file": certificates.path("ca.pem")}}
        job = start(sink, "text-worker-node", {})
        job.settle(door, 1, limit_s=10)
        assert door.requests == []
        assert re.search(r"(?i)certificate|hostname|x509", job.log())


def test_a_fingerprint_is_the_id_of_its_document(start: Start) -> None:
    """Every document is turned away once, so each is sent twice; stored are as many as there are fingerprints."""
    turned_away: set[str] = set()

    def item(document: Record) -> int:
        if document["fingerprint"] in turned_away:
            return 201
        turned_away.add(document["fingerprint"])
        return 429

    with SearchServer("ApiKey YWJj==", item) as receiver:
        sink = {"type": "elasticsearch", "endpoints": [receiver.url()], "auth": {"api_key": {"env": "ES_KEY"}}, **SMALL}
        job = start(sink, "text-worker-node", {"ES_KEY": "YWJj=="},
                    parsing={"timezone": "UTC", "fingerprint": "sha3-256"})
        expected = job.expected()
        timed = [one for one in expected if one.get("time") is not None]
        distinct = {(one["session"], one["file"], one["time"], one["raw"]) for one in timed}
        least = len(distinct) + len(expected) - len(timed)
        job.settle(receiver, least)
        job.stop()
        assert receiver.problems == []
        found = [record["fingerprint"] for record in receiver.records]
        assert len(found) == len(set(found)) == least
        assert {id_ for _, id_ in receiver.ids} == set(found)
        assert all(re.fullmatch("[0-9a-f]{64}", one) for one in found)
