"""The outputs of Fluent Bit: what their settings are called there, and what of them it cannot do.

Read in fluent/fluent-bit at v3.2.0 and v5.1.1 (`plugins/out_*`, `src/flb_upstream.c`) and run on 5.1.1. The script
gives an output a record in one of three shapes: for Loki a line, labels and metadata; else a record as JSON, with its
time in it (`object`) or in the event alone (`search`). Outputs that take text send that JSON as it is. The others want
a map: there Fluent Bit reads the JSON back, which keeps whole numbers of 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from shipgen.diagnostics import Severity
from shipgen.pipeline.model import Pipeline, SecretRef, Sink
from shipgen.targets import capabilities, common
from shipgen.targets.base import Finding

Options = list[tuple[str, Any]]
Parts = dict[str, list[str | dict[str, str]]]
"""A value that is put together: `{"parts": [text, {"env": NAME}]}`."""

NET: Options = [("net.keepalive", True), ("net.connect_timeout", 10), ("net.io_timeout", 60)]
"""Without it a request that is never answered is waited for for ever (`src/flb_upstream.c`, 5.1)."""
SHAPES = {"loki": "loki", "elasticsearch": "search", "opensearch": "search"}
"""What a record is for a type of sink; `object` for the others."""
PARSED = ("elasticsearch", "opensearch", "http", "console")
"""Types whose output wants a map."""
ABSENT = "__HIVE_DEFAULT_PARTITION__"
"""Folder of records without the field."""
_FOLDERS = {"none": "", "daily": "date=%Y-%m-%d/", "hourly": "date=%Y-%m-%d/hour=%H/"}
_EXTENSIONS = {"none": ".jsonl", "gzip": ".jsonl.gz", "zstd": ".jsonl.zst"}
_BY = ("component", "source", "cluster", "node")
"""Fields that are the same in all records of an output, or known beforehand."""
_SIGNED = re.compile(r"[A-Za-z0-9_.~-]*")
"""What a key may be made of: of a `%` in it Fluent Bit signs something else than it asks for (`uri_encode` in
`src/flb_signv4.c`, 5.1), and it writes no other character as S3 wants it."""
_FOR_EVER = 2_147_483_647
"""An output to S3 that is told to go on for ever stops after five attempts (`plugins/out_s3/s3.c`, 5.1)."""
_DATES = {"daily": "%Y.%m.%d", "monthly": "%Y.%m"}
_MAX_MS = 2_147_483_647
"""The most milliseconds that an option of librdkafka takes."""


class Secrets:
    """References to secrets: environment variables, and files that Fluent Bit reads into variables of its own."""

    def __init__(self) -> None:
        self.env: set[str] = set()
        self.files: dict[str, str] = {}

    def variable(self, ref: SecretRef) -> str:
        """The variable that holds a secret."""
        if ref.kind == "env":
            self.env.add(ref.name)
            return ref.name
        return self.files.setdefault(ref.name, f"SHIPGEN_FILE_{len(self.files) + 1}")

    def value(self, ref: SecretRef, before: str = "") -> Parts:
        """An option's value: what stands before the secret, and its variable."""
        return {"parts": [before, {"env": self.variable(ref)}]}


@dataclass(frozen=True, slots=True)
class Output:
    """An output: records of some sources; where ``key`` is not None, only those that the script gave it, or none."""

    name: str
    plugin: str
    options: Options
    sources: tuple[str, ...]
    key: str | None = None


def outputs(pipeline: Pipeline, sink: Sink, version: tuple[int, int], secrets: Secrets) -> Iterator[Output]:
    """The outputs of a sink: one, but for S3, where the folder of an object can't be made of the records in it."""
    delivery = _delivery(pipeline, sink)
    if sink.type == "s3":
        for name, sources, key, folders in _folders(pipeline, sink):
            options = [*_s3(pipeline, sink, name, folders, version), *delivery]
            yield Output(name, "s3", options, sources, key)
        return
    plugin, options = _OWN[sink.type](pipeline, sink, version, secrets)
    yield Output(sink.name, plugin, [*options, *delivery], sink.sources)


def _delivery(pipeline: Pipeline, sink: Sink) -> Options:
    retry = sink.options.get("retry", {"give_up_after": "never"})
    limit: Any = "no_limits"
    if retry["give_up_after"] != "never":
        limit = attempts(retry["give_up_after"], backoff(pipeline))
    if sink.type == "s3" and limit == "no_limits":
        limit = _FOR_EVER
    found: Options = [("workers", 1), ("retry_limit", limit)]
    buffer = sink.options.get("buffer")
    if buffer and buffer["when_full"] == "drop_oldest":
        found.append(("storage.total_limit_size", buffer["max_size"]))
    return found


def backoff(pipeline: Pipeline) -> int:
    """Longest pause between two attempts, seconds; one setting for all outputs."""
    pauses = [s.options["retry"]["max_backoff"] for s in pipeline.sinks if "retry" in s.options]
    return max(2, max(pauses, default=30_000) // 1000)


def attempts(give_up_after: int, cap: int) -> int:
    """Attempts after which Fluent Bit has waited about ``give_up_after`` ms: each pause is drawn between one second and
    twice as much as the time before, at most ``cap`` (`backoff_full_jitter` in `src/flb_scheduler.c`, 5.1)."""
    waited, tries = 0.0, 0
    while waited * 1000 < give_up_after and tries < 1_000_000:
        tries += 1
        waited += 1 + (1 + min(cap, 2**min(tries, 30))) / 2
    return max(1, tries)


def _loki(_: Pipeline, sink: Sink, version: tuple[int, int], secrets: Secrets) -> tuple[str, Options]:
    options = sink.options
    labels = [*options["labels"]["static"], *options["labels"]["fields"]]
    host, port, path, tls = endpoint(options["endpoint"])
    found: Options = [("host", host), ("port", port), ("uri", f"{path}/loki/api/v1/push")]
    if options.get("tenant"):
        found.append(("tenant_id", options["tenant"]))
    found.append(("labels", ",".join(f"{name}=$l['{name}']" for name in labels)))
    if version >= (4, 0):
        found.append(("structured_metadata_map_keys", "$m"))
    else:
        names = common.loki_metadata(options)
        found.append(("structured_metadata", ",".join(f"{name}=$m['{name}']" for name in names)))
    found += [
        ("remove_keys", "$l,$m"), ("line_format", "json"), ("drop_single_key", "raw"),
        ("auto_kubernetes_labels", False),
    ]
    if compression(sink) == "gzip":
        found.append(("compress", "gzip"))
    return "loki", [*found, *_auth(options, secrets), *_tls(tls, options), *NET]


def _search(_: Pipeline, sink: Sink, __: tuple[int, int], secrets: Secrets) -> tuple[str, Options]:
    options = sink.options
    host, port, path, tls = endpoint(options["endpoints"][0])
    found: Options = [("host", host), ("port", port), *([("path", path)] if path else [])]
    index = options.get("index")
    if index and index["rotate"] != "none":
        found += [("logstash_format", True), ("logstash_prefix", index["name"]), ("logstash_prefix_separator", "-"),
                  ("logstash_dateformat", _DATES[index["rotate"]])]
    elif index:
        found += [("logstash_format", False), ("index", index["name"])]
    else:
        stream = options["data_stream"]
        found += [("logstash_format", False), ("index", f"logs-{stream['dataset']}-{stream['namespace']}")]
    found += [
        ("write_operation", "create"), ("suppress_type_name", True), ("time_key", "@timestamp"),
        ("time_key_format", "%Y-%m-%dT%H:%M:%S"), ("time_key_nanos", True), ("include_tag_key", False),
        ("replace_dots", False), ("generate_id", False), ("current_time_index", False), ("buffer_size", False),
        ("trace_error", True),
    ]
    if compression(sink) == "gzip":
        found.append(("compress", "gzip"))
    plugin = "es" if sink.type == "elasticsearch" else "opensearch"
    return plugin, [*found, *_auth(options, secrets), *_tls(tls, options), *NET]


def _http(_: Pipeline, sink: Sink, version: tuple[int, int], secrets: Secrets) -> tuple[str, Options]:
    options = sink.options
    host, port, path, tls = endpoint(options["endpoint"])
    path = urlsplit(options["endpoint"]).path or "/"
    found: Options = [("host", host), ("port", port), ("uri", path), ("format", "json_lines"), ("json_date_key", False),
                      ("allow_duplicated_headers", False), ("log_response_payload", False)]
    if version >= METHOD_SINCE:
        found.append(("http_method", options["method"]))
    if (codec := compression(sink)) != "none":
        found.append(("compress", codec))
    headers: list[Parts] = [
        {"parts": [f"{name} {value}"]} if isinstance(value, str) else secrets.value(value, f"{name} ")
        for name, value in options["headers"].items()
    ]
    auth = options.get("auth", {})
    if "bearer" in auth:
        headers.append(secrets.value(auth["bearer"], "Authorization Bearer "))
    found += [("header", headers)] if headers else []
    basic = {k: v for k, v in options.items() if k != "auth" or "basic" in auth}
    return "http", [*found, *_auth(basic, secrets), *_tls(tls, options), *NET]


def _kafka(pipeline: Pipeline, sink: Sink, _: tuple[int, int], secrets: Secrets) -> tuple[str, Options]:
    options = sink.options
    pause, give_up = options["retry"]["max_backoff"], options["retry"]["give_up_after"]
    longest = max(s.max_entry for s in pipeline.sources)
    found: Options = [
        ("brokers", ",".join(options["brokers"])), ("topics", options["topic"]), ("format", "raw"),
        ("raw_log_key", "line"), ("queue_full_retries", 10),
    ]
    if "key" in options:
        found.append(("message_key_field", "key"))
    codec = compression(sink)
    client: dict[str, Any] = {
        "request.required.acks": {"all": -1, "leader": 1, "none": 0}[options["acks"]],
        "enable.idempotence": False, "message.send.max.retries": _MAX_MS,
        "message.timeout.ms": 0 if give_up == "never" else min(give_up, _MAX_MS),
        "retry.backoff.max.ms": min(max(pause, 100), 300_000),
        "reconnect.backoff.max.ms": min(max(pause, 100), 3_600_000),
        # raw, message and extra may each be an entry, and JSON writes a control character in six
        "message.max.bytes": min(max(20 * longest, 1_000_000), 1_000_000_000),
        "queue.buffering.max.kbytes": max(65_536, 20 * longest // 1024),
        "queue.buffering.max.ms": min(options["batch"]["max_wait"], 900_000),
        "batch.size": min(max(options["batch"]["max_bytes"], 1), 2_147_483_647),
        "topic.metadata.propagation.max.ms": 2_147_000,
        "compression.codec": codec,
    }
    if (level := _level(sink)) is not None:
        client["compression.level"] = level
    sasl, tls = options.get("sasl"), options.get("tls")
    client["security.protocol"] = ("SASL_" if sasl else "") + ("SSL" if tls is not None else "PLAINTEXT")
    if sasl:
        client |= {"sasl.mechanism": sasl["mechanism"], "sasl.username": secrets.value(sasl["user"]),
                   "sasl.password": secrets.value(sasl["password"])}
    if tls is not None:
        names = {"ca_file": "ssl.ca.location", "cert_file": "ssl.certificate.location", "key_file": "ssl.key.location"}
        client |= {theirs: tls[ours] for ours, theirs in names.items() if ours in tls}
        client["enable.ssl.certificate.verification"] = tls.get("verify", True)
        client["ssl.endpoint.identification.algorithm"] = "https" if tls.get("verify", True) else "none"
    return "kafka", [*found, *((f"rdkafka.{key}", _text(value)) for key, value in client.items())]


def _folders(pipeline: Pipeline, sink: Sink) -> Iterator[tuple[str, tuple[str, ...], str | None, dict[str, Any]]]:
    """What of a sink's records goes into folders of one name: what to call it, its sources, its component, the
    folders."""
    by = sink.options["prefix"]["by"]
    chosen = [s for s in pipeline.sources if s.name in sink.sources]
    for sources in [[s] for s in chosen] if "source" in by else [chosen]:
        names = tuple(s.name for s in sources)
        known = {"source": names[0], "cluster": pipeline.cluster or ABSENT, "node": _node(pipeline)}
        parted = f"{sink.name}.{names[0]}" if "source" in by and len(chosen) > 1 else sink.name
        if "component" not in by:
            yield parted, names, None, known
            continue
        components = dict.fromkeys(f.component for s in sources for f in s.families)
        for component in [*components, *([""] if any(not s.families for s in sources) else [])]:
            having = tuple(s.name for s in sources if component in ({f.component for f in s.families} or {""}))
            folders = {**known, "component": component or ABSENT}
            yield f"{parted}.{component or 'other'}", having, component, folders


def _node(pipeline: Pipeline) -> str | dict[str, str]:
    """The node in the key of an object: a literal, or the variable that has it. Fluent Bit sets `HOSTNAME` itself where
    it is not set (`env_preset` in `src/flb_env.c`, 5.1)."""
    node = pipeline.collector.node
    return node if isinstance(node, str) else {"env": node.name if node else "HOSTNAME"}


def _s3(
    pipeline: Pipeline, sink: Sink, name: str, folders: Mapping[str, str | dict[str, str]], version: tuple[int, int]
) -> Options:
    options = sink.options
    prefix, endpoint = options["prefix"], options.get("endpoint")
    codec = compression(sink)
    key = ["/", *(part for field in prefix["by"] for part in (f"{field}=", folders[field], "/")),
           f"{_FOLDERS[prefix['date']]}{pipeline.name}-", folders["node"],
           f"-%Y%m%dT%H%M%S-$UUID{_EXTENSIONS[codec]}"]
    found: Options = [("bucket", options["bucket"]), ("region", options.get("region", "us-east-1"))]
    if endpoint:
        found.append(("endpoint", endpoint.rstrip("/")))
    found += [
        ("s3_key_format", {"parts": key}), ("log_key", "line"), ("compression", codec),
        ("content_type", "application/x-ndjson"), ("use_put_object", True), ("preserve_data_ordering", False),
        ("total_file_size", min(max(options["batch"]["max_bytes"], 1_000_000), 50_000_000)),
        ("upload_timeout", max(1, options["batch"]["max_wait"] // 1000)),
        # of its own: an output sends all that it finds there when it starts
        ("store_dir", f"{common.state_dir(pipeline, 'fluentbit')}/s3/{name}"), ("static_file_path", True),
    ]
    if version >= QUARANTINE_SINCE:
        found.append(("retry_exhausted_action", "quarantine"))
    if "buffer" in options:
        found.append(("store_dir_limit_size", options["buffer"]["max_size"]))
    given = dict(_tls(_s3_tls(sink), options))
    return [*found, *((k, v) for k, v in given.items() if k != "tls.verify_hostname"), *NET]


def _s3_tls(sink: Sink) -> bool:
    return str(sink.options.get("endpoint", "https:")).startswith("https:")


def credentials(pipeline: Pipeline) -> list[tuple[str, SecretRef]]:
    """Variables that Fluent Bit's client of AWS looks for, and the secrets they have to hold."""
    found = [s.options["credentials"] for s in pipeline.sinks if s.type == "s3" and "credentials" in s.options]
    names = {"AWS_ACCESS_KEY_ID": "access_key_id", "AWS_SECRET_ACCESS_KEY": "secret_access_key"}
    return [(variable, found[0][key]) for variable, key in names.items()] if found else []


def _text(value: Any) -> Any:
    """A value that librdkafka reads, which takes text only."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def _file(_: Pipeline, sink: Sink, __: tuple[int, int], ___: Secrets) -> tuple[str, Options]:
    directory, _, name = sink.options["path"].rpartition("/")
    return "file", [("path", directory or "/"), ("file", name), ("format", "template"), ("template", "{line}"),
                    ("mkdir", True)]


def _console(_: Pipeline, __: Sink, ___: tuple[int, int], ____: Secrets) -> tuple[str, Options]:
    return "stdout", [("format", "json_lines"), ("json_date_key", False)]


_OWN = {"loki": _loki, "elasticsearch": _search, "opensearch": _search, "kafka": _kafka, "http": _http, "file": _file,
        "console": _console}


def _auth(options: Mapping[str, Any], secrets: Secrets) -> Options:
    auth = options.get("auth", {})
    if "bearer" in auth:
        return [("bearer_token", secrets.value(auth["bearer"]))]
    if "api_key" in auth:
        return [("http_api_key", secrets.value(auth["api_key"]))]
    if "basic" in auth:
        user, password = (secrets.value(auth["basic"][key]) for key in ("user", "password"))
        return [("http_user", user), ("http_passwd", password)]
    return []


def _tls(used: bool, options: Mapping[str, Any]) -> Options:
    """TLS settings under Fluent Bit's names. The scheme of the endpoint says whether there is TLS at all."""
    given = options.get("tls", {})
    verify = given.get("verify", True)
    names = {"ca_file": "tls.ca_file", "cert_file": "tls.crt_file", "key_file": "tls.key_file",
             "server_name": "tls.vhost"}
    found: Options = [("tls", used), ("tls.verify", verify), ("tls.verify_hostname", verify)]
    return found + [(theirs, given[ours]) for ours, theirs in names.items() if ours in given]


def endpoint(url: str) -> tuple[str, int, str, bool]:
    """Host, port, path and whether TLS is used."""
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    return parts.hostname or "", parts.port or (443 if tls else 80), parts.path.rstrip("/"), tls


_AUTO = {"loki": "gzip", "elasticsearch": "gzip", "opensearch": "gzip", "s3": "gzip", "kafka": "lz4"}
"""What `compression: auto` is. Of an HTTP endpoint nothing is known, so nothing is compressed."""


def compression(sink: Sink) -> str:
    """Codec of a sink."""
    value = sink.options["compression"]
    codec = value["codec"] if isinstance(value, Mapping) else value
    return str(_AUTO.get(sink.type, "none") if codec == "auto" else codec)


def _level(sink: Sink) -> int | None:
    value = sink.options["compression"]
    return value.get("level") if isinstance(value, Mapping) else None


METHOD_SINCE = (4, 2)
"""From here on an HTTP output can PUT."""
API_KEY_SINCE = (4, 1)
"""From here on Elasticsearch takes an API key."""
FILES_SINCE = (5, 1)
"""From here on variables can be read from files (5.0.3 does so, 5.0.0 does not, and 4.2.8 does not start)."""
ADDRESSES_SINCE = (5, 1)
"""From here on an IP address is looked for among those of a certificate (5.0.9 does so, 5.0.0 does not)."""
QUARANTINE_SINCE = (5, 1)
"""From here on an output to S3 keeps what it gave up (5.0.9 does so, 5.0.0 does not)."""


def by_default(
    version: tuple[int, int], leaf: tuple[str, ...], path: tuple[str | int, ...], value: Any
) -> Iterator[Finding]:
    """What the table of capabilities says of a value, also where the policy leaves it to its default."""
    row = capabilities.look_up("fluentbit", version, leaf, value)
    if row.status is capabilities.Status.APPROXIMATED:
        yield Finding("approximated", Severity.WARNING, path, f"approximated: {row.text}", row.way_out)


def findings(pipeline: Pipeline, sink: Sink, version: tuple[int, int]) -> Iterator[Finding]:
    """What depends on the values of a sink's settings."""
    path: tuple[str | int, ...] = ("sinks", sink.name)
    if sink.type == "s3":
        yield from _s3_findings(pipeline, sink, version)
        return
    if sink.type not in ("file", "console", "kafka"):
        yield from _tls_findings(sink, version)
    for where, ref in common.sink_secrets(sink):
        if ref.kind == "file" and version < FILES_SINCE:
            yield Finding("unsupported", Severity.ERROR, where, "Fluent Bit reads secrets from files since 5.1",
                          "use {env: NAME}, or a newer version")
    if sink.type == "file" and "$" in sink.options["path"]:
        yield Finding("unsupported", Severity.ERROR, (*path, "path"),
                      "Fluent Bit takes a `$` in the path of a file for a field of the record", "use another name")
    if "api_key" in sink.options.get("auth", {}) and version < API_KEY_SINCE:
        yield Finding("unsupported", Severity.ERROR, (*path, "auth", "api_key"), "Fluent Bit knows API keys since 4.1",
                      "use basic, or a newer version")
    if len(sink.options.get("endpoints", ())) > 1:
        yield Finding("approximated", Severity.WARNING, (*path, "endpoints"),
                      "approximated: Fluent Bit knows one address of a cluster; the first of `endpoints` is used",
                      "put a load balancer in front, or use the target vector")
    if sink.type == "http":
        if sink.options["method"] == "PUT" and version < METHOD_SINCE:
            yield Finding("unsupported", Severity.ERROR, (*path, "method"), "Fluent Bit can PUT since 4.2",
                          "use method: POST, or a newer version")
        for name, value in sink.options["headers"].items():
            if isinstance(value, str) and "${" in value:
                yield Finding("unsupported", Severity.ERROR, (*path, "headers", name),
                              "Fluent Bit takes `${` for a variable and has no escape for it", "use another value")


def _tls_findings(sink: Sink, version: tuple[int, int]) -> Iterator[Finding]:
    key = "endpoint" if "endpoint" in sink.options else "endpoints"
    url = sink.options[key] if key == "endpoint" else sink.options[key][0]
    host, _, _, used = endpoint(url)
    tls = sink.options.get("tls", {})
    address = ":" in host or re.fullmatch(r"[0-9.]+", host)
    if used and address and version < ADDRESSES_SINCE and tls.get("verify", True) and "server_name" not in tls:
        yield Finding("unsupported", Severity.ERROR, ("sinks", sink.name, key), "before 5.1 Fluent Bit does not look "
                      "for an IP address among those of a certificate, so it would never connect",
                      "use a host name, or give tls.server_name")


def _s3_findings(pipeline: Pipeline, sink: Sink, version: tuple[int, int]) -> Iterator[Finding]:
    path: tuple[str | int, ...] = ("sinks", sink.name)
    yield from by_default(version, ("sinks", "<s3>", "retry", "give_up_after"), (*path, "retry", "give_up_after"),
                          sink.options["retry"]["give_up_after"])
    if _s3_tls(sink):
        yield from by_default(version, ("sinks", "<s3>", "tls", "verify"), (*path, "tls", "verify"),
                              sink.options.get("tls", {}).get("verify", True))
    for field in sink.options["prefix"]["by"]:
        if field not in _BY:
            yield Finding("unsupported", Severity.ERROR, (*path, "prefix", "by"),
                          f"Fluent Bit can't make the folder of an object of the records in it, such as their {field}",
                          f"use some of {', '.join(_BY)}, or the target vector")
    node = pipeline.collector.node
    in_key = {("cluster",): (pipeline.cluster or "") if "cluster" in sink.options["prefix"]["by"] else "",
              ("collector", "node"): node if isinstance(node, str) else ""}
    for where, value in in_key.items():
        if not _SIGNED.fullmatch(value):
            yield Finding("unsupported", Severity.ERROR, where, "Fluent Bit signs requests wrong if the key of the "
                          "object has other characters than letters, digits and `_.~-`",
                          "use those, or the target vector")
    given = [s.options["credentials"] for s in pipeline.sinks if s.type == "s3" and "credentials" in s.options]
    if "credentials" in sink.options and any(other != given[0] for other in given):
        yield Finding("unsupported", Severity.ERROR, (*path, "credentials"),
                      "Fluent Bit has one set of credentials for all its outputs to S3", "use the same for all")
    if sink.options["batch"]["max_bytes"] > 50_000_000:
        yield Finding("approximated", Severity.WARNING, (*path, "batch", "max_bytes"),
                      "approximated: an object that Fluent Bit puts at once has at most 50 MB; that is used",
                      "use at most 47MiB")
