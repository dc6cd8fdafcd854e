"""The policy language as data: one tree of nodes.

The JSON Schema, the reference page, the defaults and the list of leaves are all read off this tree; nothing else says
which keys exist. A key is written once, with its description, its default and, where that helps, an example.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shipgen.catalog import record, verl
from shipgen.policy import units

MISSING: Final = object()

# ---------------------------------------------------------------------------------------------------------------------
# What a record holds (section 5 of the contract), as far as a policy can name it.

RECORD_FIELDS: Final[Mapping[str, str]] = record.FIELDS
LEVELS: Final = ("trace", "debug", "info", "warn", "error", "fatal")
EVENTS: Final = verl.EVENTS
COMPONENTS: Final = (
    "raylet",
    "gcs_server",
    "worker",
    "core_worker",
    "core_driver",
    "io_worker",
    "job_driver",
    "job_supervisor",
    "dashboard",
    "dashboard_agent",
    "runtime_env_agent",
    "runtime_env_setup",
    "log_monitor",
    "monitor",
    "ray_client_server",
    "serve",
    "train",
    "ray_data",
    "events",
    "export_events",
    "process_exit",
)
VERL_COMPONENTS: Final = tuple(verl.COMPONENTS.values())
TARGETS: Final = ("vector", "fluentbit", "fluentd", "filebeat", "promtail")

# Fields that every Loki sink gets as structured metadata whatever `metadata` says.
ALWAYS_METADATA: Final = ("parse_error", "entry_time", "time_source", "truncated")

DEFAULT_LABEL_FIELDS: Final = ("cluster", "component", "level", "node")

# ---------------------------------------------------------------------------------------------------------------------
# Nodes: compared by identity, as there is one of each; generated comparisons would cost at every start.


@dataclass(frozen=True, eq=False)
class Scalar:
    """One value. ``schema`` is its JSON Schema, ``expects`` the same in words, ``convert`` gives the resolved value."""

    kind: str
    expects: str
    schema: Mapping[str, Any]
    convert: Callable[[Any], Any] | None = None


@dataclass(frozen=True, eq=False)
class Key:
    """A key of a map: the node of its value and what is said about it."""

    node: Node
    description: str
    default: Any = MISSING
    required: bool = False
    example: Any = MISSING
    default_note: str = ""  # a default that depends on the rest of the policy, in words


@dataclass(frozen=True, eq=False)
class Map:
    """A map with known ``keys``; where ``rest`` is set, also with keys that the user names (``names`` says how)."""

    keys: Mapping[str, Key] = field(default_factory=dict)
    rest: Node | None = None
    names: Scalar | None = None
    one_of: tuple[str, ...] = ()  # exactly one of these keys
    at_most_one_of: tuple[str, ...] = ()
    at_least: int = 0  # entries
    secret: bool = False  # a reference to a secret


@dataclass(frozen=True, eq=False)
class List:
    """A list; ``merge_by`` makes it a list of named things, which later files extend by that key."""

    item: Node
    at_least: int = 0
    unique: bool = False
    merge_by: str = ""


@dataclass(frozen=True, eq=False)
class Variants:
    """Maps told apart by the value of their key ``type``."""

    options: Mapping[str, Map]
    description: str


@dataclass(frozen=True, eq=False)
class Union:
    """One of several nodes, told apart by the JSON type of the value."""

    options: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Ref:
    """A node of :data:`DEFINITIONS` by name: what makes the tree recursive."""

    name: str


Node = Scalar | Map | List | Variants | Union | Ref


# ---------------------------------------------------------------------------------------------------------------------
# Scalars


def _string(kind: str, expects: str, pattern: str = "", longest: int = 0) -> Scalar:
    schema: dict[str, Any] = {"type": "string"}
    if pattern:
        schema["pattern"] = pattern
    if longest:
        schema["maxLength"] = longest
    return Scalar(kind, expects, schema)


def _enum(*values: str) -> Scalar:
    return Scalar("enum", "one of " + ", ".join(values), {"type": "string", "enum": list(values)})


def _integer(minimum: int, maximum: int | None = None) -> Scalar:
    words = (
        f"a whole number from {minimum} to {maximum}" if maximum is not None else f"a whole number, {minimum} or more"
    )
    schema: dict[str, Any] = {"type": "integer", "minimum": minimum}
    if maximum is not None:
        schema["maximum"] = maximum
    return Scalar("int", words, schema, int)


def _quantity(kind: str, example: str, pattern: str, convert: Callable[[str], int | str]) -> Scalar:
    return Scalar(kind, f"a {kind} such as {example}", {"type": "string", "pattern": pattern}, convert)


BOOL = Scalar("bool", "true or false", {"type": "boolean"})
TRUE = Scalar("true", "true", {"type": "boolean", "const": True})
TEXT = _string("string", "text", longest=4096)
LINE = _string("string", "text that is not empty, at most 512 characters", "^.+$", 512)
SIZE = _quantity("size", "512MiB", units.SIZE_PATTERN, units.size)
DURATION = _quantity("duration", "5s", units.DURATION_PATTERN, units.duration)
RATE = _quantity("rate", "2MiB/s", units.RATE_PATTERN, units.rate)
REGEX = _string("regex", "a regular expression", "^.+$", 4096)
PATTERN = _string("redaction", "a regular expression", "^.+$", 4096)
PATH = _string("path", "an absolute path without wildcards", r"^/[^*?\[\]{},`\\]*$", 4096)
PLAIN_PATH = _string("path", "an absolute path of letters, digits and `_./:+-`", "^/[A-Za-z0-9_./:+-]*$", 4096)
GLOB = _string("glob", "an absolute path, with `*`, `?`, `[a-z]` or `[!a-z]` where needed", "^/.*$", 4096)
URL = _string(
    "url",
    "a URL such as https://loki.example.com:3100, without user, password, query or fragment",
    r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&'()*+,;=:%/-]*)?$",
    2048,
)
ADDRESS = _string(
    "address", "a host and a port such as 127.0.0.1:6044", r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$", 300
)
HOST = _string("host", "an IP address or a host name", r"^[A-Za-z0-9:._-]+$", 253)
ENV_NAME = _string("env", "the name of an environment variable", "^[A-Za-z_][A-Za-z0-9_]*$", 256)
FIELD = _string("field", "the name of a field of the record", "^[A-Za-z_][A-Za-z0-9_]*$", 128)
LABEL = _string(
    "label",
    "a label name: letters, digits and `_`, not `__` in front",
    "^[A-Za-z][A-Za-z0-9_]*$|^_([A-Za-z0-9][A-Za-z0-9_]*)?$",
    128,
)
VERSION = _string("version", 'a quoted version such as "0.57"', r"^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,6})?$")
POLICY_NAME = _string(
    "name", "a name: a lower-case letter, then at most 40 of a-z, 0-9 and `-`", "^[a-z][a-z0-9-]{0,40}$"
)
NAME = _string(
    "name", "a name: a lower-case letter, then at most 40 of a-z, 0-9, `_` and `-`", "^[a-z][a-z0-9_-]{0,40}$"
)
RULE_NAME = _string(
    "name", "a name: a lower-case letter, then at most 62 of a-z, 0-9, `_` and `-`", "^[a-z][a-z0-9_-]{0,62}$"
)
SOURCE_REF = _string("source", "the name of a source", "^[a-z][a-z0-9_-]{0,40}$")
SINK_REF = _string("sink", "the name of a sink", "^[a-z][a-z0-9_-]{0,40}$")
COMPONENT = _string("component", "`default`, `all` or the name of a component", "^[a-z][a-z0-9_]*$")
TIMEZONE = _string("timezone", "`local` or an IANA name such as Europe/Berlin", "^[A-Za-z0-9_+/-]+$", 64)
LEVEL = _enum(*LEVELS)
PATIENCE = _quantity(
    "duration",
    "1h, or `never`",
    f"^never$|{units.DURATION_PATTERN}",
    lambda text: text if text == "never" else units.duration(text),
)
NUMBER = Scalar("number", "a number", {"type": "number"})
SHARE = Scalar(
    "share",
    "a number greater than 0 and less than 1",
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    float,
)

# ---------------------------------------------------------------------------------------------------------------------
# Parts that several places share

SECRET = Map(
    {
        "env": Key(ENV_NAME, "Environment variable of the shipper that holds the secret.", example="LOKI_TOKEN"),
        "file": Key(PATH, "File that holds the secret, read where the shipper runs.", example="/run/secrets/token"),
    },
    one_of=("env", "file"),
    secret=True,
)
_BASIC = Key(
    Map(
        {
            "user": Key(SECRET, "The user name, by reference.", required=True),
            "password": Key(SECRET, "The password, by reference.", required=True),
        }
    ),
    "Basic authentication.",
)
_AUTH = Key(
    Map({"bearer": Key(SECRET, "A bearer token, by reference."), "basic": _BASIC}, one_of=("bearer", "basic")),
    "How the shipper proves who it is. Secrets are references, never literals.",
    example={"bearer": {"env": "LOKI_TOKEN"}},
)
_SEARCH_AUTH = Key(
    Map({"api_key": Key(SECRET, "An API key, by reference."), "basic": _BASIC}, one_of=("api_key", "basic")),
    "How the shipper proves who it is. Secrets are references, never literals.",
    example={"api_key": {"env": "ES_API_KEY"}},
)
_TLS = Key(
    Map(
        {
            "ca_file": Key(PATH, "Certificates to trust instead of the system's.", example="/etc/ssl/ca.pem"),
            "cert_file": Key(PATH, "Client certificate; needs `key_file`."),
            "key_file": Key(PATH, "Key of the client certificate."),
            "server_name": Key(HOST, "Name that the server's certificate must carry, where it is not the host's."),
            "verify": Key(BOOL, "Whether the server's certificate is checked.", default=True),
        }
    ),
    "TLS of the connection.",
)
_BUFFER = Key(
    Map(
        {
            "max_size": Key(SIZE, "Disk that the buffer may take.", default="1GiB"),
            "when_full": Key(
                _enum("block", "drop_newest", "drop_oldest"),
                "What happens when it is full: stop reading, or lose records.",
                default="block",
            ),
        }
    ),
    "Records that wait for the sink, on disk where the target has such a buffer.",
    default={},
)
_RETRY = Key(
    Map(
        {
            "max_backoff": Key(DURATION, "Longest pause between two attempts.", default="30s"),
            "give_up_after": Key(
                PATIENCE,
                "When a batch is given up: `never`, or a duration. What the sink refuses as wrong is not retried.",
                default="never",
                example="1h",
            ),
        }
    ),
    "What happens when the sink does not answer, or says it is overloaded.",
    default={},
)
_DELIVERY = Key(
    _enum("at_least_once", "best_effort"),
    "Whether a record may be lost when something fails. Left out: the strongest that the target has.",
    default_note="the strongest that the target has",
)
_WHEN = Key(Ref("condition"), "Only records for which this holds.", example={"level": {"at_least": "info"}})
_FROM = Key(
    List(SOURCE_REF, at_least=1, unique=True),
    "The sources whose records this sink gets.",
    default_note="all sources",
    example=["ray"],
)


def _batch(max_bytes: str, max_wait: str) -> Key:
    return Key(
        Map(
            {
                "max_bytes": Key(SIZE, "Size at which a batch is sent.", default=max_bytes),
                "max_wait": Key(DURATION, "Age at which a batch is sent even if it is small.", default=max_wait),
            }
        ),
        "How many records travel together.",
        default={},
    )


def _compression(*codecs: str, default: str = "auto") -> Key:
    detail = Map(
        {
            "codec": Key(_enum(*codecs), "The codec.", required=True),
            "level": Key(_integer(1, 9), "How hard it tries: 1 is fast, 9 is small."),
        }
    )
    return Key(
        Union((_enum("auto", "none", *codecs), detail)),
        "Compression of what is sent; `auto` is the best that target and sink agree on.",
        default=default,
        example={"codec": codecs[0], "level": 5},
    )


# ---------------------------------------------------------------------------------------------------------------------
# Conditions

_LITERAL = Union((TEXT, NUMBER, BOOL))
_MATCHES = Key(
    REGEX,
    "A regular expression that is found in the field. `^` and `$` anchor the whole text, `.` matches no newline.",
    example="heartbeat ok",
)
_EXISTS = Key(BOOL, "Whether the record has the field.", example=True)

DEFINITIONS: dict[str, Node] = {
    "condition": Map(
        {
            "any": Key(List(Ref("condition"), at_least=1), "Holds when one of these holds."),
            "all": Key(List(Ref("condition"), at_least=1), "Holds when each of these holds."),
            "not": Key(Ref("condition"), "Holds when this does not."),
            "level": Key(
                Union(
                    (
                        LEVEL,
                        List(LEVEL, at_least=1),
                        Map(
                            {
                                "at_least": Key(
                                    LEVEL,
                                    "This level or a graver one. A record without a level matches.",
                                    example="info",
                                ),
                                "below": Key(
                                    LEVEL, "A less grave level. A record without a level never matches.", example="info"
                                ),
                                "matches": _MATCHES,
                                "exists": _EXISTS,
                            },
                            at_least=1,
                        ),
                    )
                ),
                "Test of the level.",
                example={"at_least": "info"},
            ),
        },
        rest=Union(
            (TEXT, NUMBER, BOOL, List(_LITERAL, at_least=1), Map({"matches": _MATCHES, "exists": _EXISTS}, at_least=1))
        ),
        names=FIELD,
        at_least=1,
    )
}

# ---------------------------------------------------------------------------------------------------------------------
# Sources


def _source(type_name: str, description: str, keys: dict[str, Key]) -> Map:
    return Map(
        {
            "type": Key(_enum(type_name), description, required=True),
            **keys,
            "start": Key(
                _enum("beginning", "end"),
                "Where a file is read from that was there before the shipper's first start.",
                default="beginning",
            ),
            "ignore_older": Key(
                DURATION,
                "Leave out files not written for that long. Off by default: a long outage must not lose the tail.",
                example="7d",
            ),
            "rotated": Key(
                _enum("auto", "include", "exclude"),
                "Whether rotated files are read. `auto`: where files are followed by inode and offsets are kept.",
                default="auto",
            ),
            "max_entry": Key(SIZE, "Longer entries are cut and marked `truncated: true`.", default="240KiB"),
            "max_line": Key(SIZE, "A longer line is handled as `on_long_line` says.", default="256KiB"),
            "on_long_line": Key(_enum("truncate", "skip"), "What happens to a longer line.", default="truncate"),
        }
    )


_PATHS = Key(List(GLOB, at_least=1, unique=True), "Files to read.", required=True, example=["/var/log/verl/*.log"])
_EXCLUDE = Key(
    List(GLOB, unique=True),
    "Files to leave out although `paths` names them.",
    default=[],
    example=["/data/jobs/tmp-*/*.log"],
)
_LAYOUT = _enum("python", "rfc3339", "glog", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns")

_REGEX_FORMAT = Map(
    {
        "regex": Key(
            REGEX,
            "How an entry reads; its named groups `(?P<name>...)` become fields.",
            required=True,
            example=r"^(?P<level>[A-Z]+) (?P<message>.*)$",
        ),
        "time": Key(
            Map(
                {
                    "field": Key(FIELD, "The group that holds the time.", required=True),
                    "layout": Key(_LAYOUT, "How the time is written.", required=True),
                }
            ),
            "Where the time of an entry is found.",
            example={"field": "time", "layout": "python"},
        ),
    }
)
_MULTILINE = Key(
    Map(
        {
            "start": Key(
                REGEX,
                "A line in which this is found starts an entry.",
                required=True,
                example=r"^\d{4}-",
            ),
            "max_lines": Key(_integer(1, 100_000), "Lines that one entry may hold.", default=500),
            "timeout": Key(DURATION, "Pause after which an entry is complete although none follows.", default="3s"),
        }
    ),
    "Joins lines into entries.",
)

SOURCES = Variants(
    {
        "ray": _source(
            "ray",
            "The log files of Ray's sessions.",
            {
                "components": Key(
                    List(COMPONENT, at_least=1, unique=True),
                    "What to read: `default`: every line of the cluster once; `all`: every file; or components.",
                    default=["default"],
                    example=["raylet", "worker"],
                ),
                "exclude_components": Key(
                    List(COMPONENT, unique=True), "Components to leave out.", default=[], example=["monitor"]
                ),
            },
        ),
        "verl": _source(
            "verl",
            "Logs of VeRL.",
            {
                "dialect": Key(
                    _enum(*verl.DIALECTS),
                    "`engine_worker`: `[EVENT] text key=value` lines; `upstream`: the open-source package's metrics, "
                    "an object of JSON a line.",
                    default="engine_worker",
                ),
                "paths": _PATHS,
                "exclude": _EXCLUDE,
                "format": Key(
                    _REGEX_FORMAT,
                    "How an entry reads, where it is not as the dialect has it.",
                    example={"regex": r"^(?P<level>[A-Z]+) \[(?P<event>[A-Z]+)\] (?P<message>.*)$"},
                ),
                "multiline": _MULTILINE,
            },
        ),
        "file": _source(
            "file",
            "Any other log file.",
            {
                "paths": _PATHS,
                "exclude": _EXCLUDE,
                "format": Key(
                    Union((_enum("text", "json"), _REGEX_FORMAT)),
                    "How a line is read: `text`, `json`, or a regular expression.",
                    default="text",
                    example="json",
                ),
                "multiline": _MULTILINE,
            },
        ),
    },
    "Files to read.",
)

# ---------------------------------------------------------------------------------------------------------------------
# Rules

ACTIONS: Final = ("drop", "sample", "redact", "limit", "add")
REDACT_KINDS: Final = ("email", "ipv4", "ipv6", "bearer", "url_password", "aws_key", "private_key", "ray_env_vars")

RULE = Map(
    {
        "name": Key(RULE_NAME, "Unique; later files extend the rule by it.", required=True, example="no-heartbeats"),
        "when": Key(Ref("condition"), "The records it is about. Left out: all.", example={"component": "raylet"}),
        "sinks": Key(
            List(SINK_REF, at_least=1, unique=True),
            "The sinks for which it holds.",
            default_note="all sinks",
            example=["loki"],
        ),
        "drop": Key(TRUE, "Throws the record away."),
        "sample": Key(
            Union(
                (
                    SHARE,
                    Map(
                        {
                            "rate": Key(SHARE, "The share that is kept.", required=True, example=0.1),
                            "by": Key(FIELD, "Records that agree in this field are kept or dropped together."),
                        }
                    ),
                )
            ),
            "Keeps a share of the records and notes it as `sample_rate`.",
            example=0.1,
        ),
        "redact": Key(
            Map(
                {
                    "pattern": Key(PATTERN, "What is replaced.", example="token=[a-z0-9]+"),
                    "kind": Key(_enum(*REDACT_KINDS), "A known kind of secret instead of a pattern.", example="email"),
                    "with": Key(TEXT, "What stands there instead, literally.", default="[redacted]"),
                },
                one_of=("pattern", "kind"),
            ),
            "Replaces what must not leave the node, in every string field.",
            example={"kind": "email"},
        ),
        "limit": Key(
            Map(
                {
                    "records": Key(
                        _integer(1, 1_000_000_000), "Records that pass in each period.", required=True, example=5000
                    ),
                    "per": Key(DURATION, "The period.", default="1s"),
                    "by": Key(
                        List(FIELD, unique=True), "Fields whose values are counted apart.", default=[], example=["file"]
                    ),
                }
            ),
            "Lets a number of records pass in each period and drops the others.",
            example={"records": 5000, "per": "1s", "by": ["file"]},
        ),
        "add": Key(
            Map(rest=LINE, names=FIELD, at_least=1), "Fields to add, as literal text.", example={"team": "rl-infra"}
        ),
    },
    one_of=ACTIONS,
)

# ---------------------------------------------------------------------------------------------------------------------
# Sinks


def _retention(**more: Key) -> Key:
    keep = Key(DURATION, "How long what was delivered is kept: a day at least.", required=True, example="30d")
    return Key(Map({"keep": keep, **more}), "How long the server keeps it: retention/.", example={"keep": "30d"})


_COLD_AFTER = Key(DURATION, "When it goes to cheaper storage.", example="7d")


def _sink(type_name: str, description: str, keys: dict[str, Key], *, remote: bool = True) -> Map:
    head = {"type": Key(_enum(type_name), description, required=True), "from": _FROM, "when": _WHEN}
    tail = {"delivery": _DELIVERY, "buffer": _BUFFER, "retry": _RETRY} if remote else {}
    return Map({**head, **keys, **tail})


def _search(type_name: str, description: str) -> Map:
    return replace_one(
        _sink(
            type_name,
            description,
            {
                "endpoints": Key(
                    List(URL, at_least=1, unique=True),
                    "Base URLs of the nodes.",
                    required=True,
                    example=["https://es:9200"],
                ),
                "data_stream": Key(
                    Map(
                        {
                            "dataset": Key(
                                _string("dataset", "lower-case letters, digits, `_` and `.`", "^[a-z0-9_.]{1,100}$"),
                                "The dataset.",
                                default="ray",
                            ),
                            "namespace": Key(
                                _string("namespace", "lower-case letters, digits, `_` and `.`", "^[a-z0-9_.]{1,100}$"),
                                "The namespace.",
                                default="default",
                            ),
                        }
                    ),
                    "The data stream `logs-<dataset>-<namespace>`; what is used unless `index` is given.",
                    default_note="dataset `ray`, namespace `default`, unless `index` is given",
                    example={"dataset": "ray", "namespace": "prod"},
                ),
                "index": Key(
                    Map(
                        {
                            "name": Key(
                                _string(
                                    "index",
                                    "lower-case letters, digits, `_`, `.` and `-`, a letter or digit first",
                                    "^[a-z0-9][a-z0-9_.-]{0,199}$",
                                ),
                                "Name of the index, or what it begins with.",
                                required=True,
                                example="ray-logs",
                            ),
                            "rotate": Key(
                                _enum("none", "daily", "monthly"), "How often a new index is begun.", default="daily"
                            ),
                        }
                    ),
                    "A plain index instead of a data stream.",
                ),
                "retention": _retention(cold_after=_COLD_AFTER),
                "auth": _SEARCH_AUTH,
                "tls": _TLS,
                "batch": _batch("1MiB", "1s"),
                "compression": _compression("gzip"),
            },
        ),
        ("data_stream", "index"),
    )


def replace_one(node: Map, names: tuple[str, ...]) -> Map:
    """The same map, with at most one of ``names`` allowed."""
    return Map(node.keys, node.rest, node.names, node.one_of, names, node.at_least, node.secret)


SINKS = Variants(
    {
        "loki": _sink(
            "loki",
            "Grafana Loki.",
            {
                "endpoint": Key(
                    URL,
                    "Base URL of Loki, without `/loki/api/v1/push`.",
                    required=True,
                    example="https://loki.example.com",
                ),
                "tenant": Key(
                    _string("tenant", "a Loki tenant", r"^[A-Za-z0-9!._*'()-]{1,150}$"), "The tenant.", example="ml"
                ),
                "labels": Key(
                    Map(
                        {
                            "static": Key(
                                Map(rest=LINE, names=LABEL),
                                "Labels with a fixed value.",
                                default_note="`job: <name of the policy>`",
                                example={"job": "ray"},
                            ),
                            "fields": Key(
                                List(LABEL, unique=True),
                                "Fields of the record that become labels. An absent field gives no label.",
                                default_note="`cluster` (where the policy has one), `component`, `level`, `node`",
                                example=["cluster", "component", "level", "node"],
                            ),
                            "allow_high_cardinality": Key(
                                BOOL, "Allows labels with unbounded values, such as ids and paths.", default=False
                            ),
                        }
                    ),
                    "The labels of a stream, at most 14.",
                    default={},
                ),
                "metadata": Key(
                    List(FIELD, unique=True),
                    "Fields that become structured metadata. `parse_error`, `entry_time`, `time_source` and "
                    "`truncated` always do.",
                    default_note="every string or number field but `time`, `message`, `raw`, `extra` and the labels",
                    example=["session", "file", "pid"],
                ),
                "line": Key(
                    _enum("raw", "message", "json"),
                    "What the line is: the entry as it stood in the file, its message, or all fields as JSON.",
                    default="raw",
                ),
                "server": Key(
                    Map(
                        {
                            "max_chunk_age": Key(DURATION, "`ingester.max_chunk_age`.", default="2h"),
                            "max_line_size": Key(SIZE, "`limits_config.max_line_size`.", default="256KiB"),
                        }
                    ),
                    "What the server is set to, where that decides what it accepts.",
                    default={},
                ),
                "late": Key(
                    _enum("restamp", "keep", "drop"),
                    "What happens to entries so old that Loki would throw them away: they get the read time and keep "
                    "their own as metadata, are sent all the same, or are dropped and counted.",
                    default="restamp",
                ),
                "retention": _retention(
                    streams=Key(
                        List(
                            Map(
                                {
                                    "labels": Key(
                                        Map(rest=LINE, names=LABEL, at_least=1),
                                        "Labels of the streams, beside the static ones.",
                                        required=True,
                                        example={"component": "raylet"},
                                    ),
                                    "keep": Key(DURATION, "How long these are kept.", required=True, example="7d"),
                                }
                            )
                        ),
                        "Streams that are kept for another time; of several that match the last counts.",
                        default=[],
                        example=[{"labels": {"level": "debug"}, "keep": "2d"}],
                    )
                ),
                "auth": _AUTH,
                "tls": _TLS,
                "batch": _batch("1MiB", "1s"),
                "compression": _compression("gzip", "snappy"),
            },
        ),
        "elasticsearch": _search("elasticsearch", "Elasticsearch."),
        "opensearch": _search("opensearch", "OpenSearch."),
        "s3": _sink(
            "s3",
            "S3, or what speaks it: Ceph RGW, MinIO.",
            {
                "bucket": Key(
                    _string("bucket", "a bucket name", "^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$"),
                    "The bucket.",
                    required=True,
                    example="ray-logs",
                ),
                "prefix": Key(
                    Map(
                        {
                            "by": Key(
                                List(FIELD, unique=True),
                                "Fields whose values become folders.",
                                default=["component"],
                            ),
                            "date": Key(_enum("none", "daily", "hourly"), "Folders by time.", default="daily"),
                        }
                    ),
                    "Folders in the bucket, Hive style: `component=raylet/date=2026-12-01/`.",
                    default={},
                    example={"by": ["component"], "date": "daily"},
                ),
                "region": Key(_string("region", "a region", "^[a-z0-9-]{1,64}$"), "The region.", example="us-east-1"),
                "endpoint": Key(URL, "Another endpoint than Amazon's.", example="https://minio:9000"),
                "path_style": Key(BOOL, "Whether the bucket is part of the path, not of the host name.", default=False),
                "credentials": Key(
                    Map(
                        {
                            "access_key_id": Key(SECRET, "The access key, by reference.", required=True),
                            "secret_access_key": Key(SECRET, "Its secret, by reference.", required=True),
                        }
                    ),
                    "Left out: what the environment of the shipper offers, such as an instance role.",
                    example={"access_key_id": {"env": "S3_KEY"}, "secret_access_key": {"env": "S3_SECRET"}},
                ),
                "sse": Key(_enum("AES256", "aws:kms"), "Encryption on the server.", example="AES256"),
                "retention": _retention(
                    cold_after=_COLD_AFTER,
                    storage_class=Key(
                        _string("storage class", "capitals and `_`", "^[A-Z][A-Z0-9_]{0,63}$"),
                        "Where it goes then.",
                        default="GLACIER",
                    ),
                ),
                "tls": _TLS,
                "batch": _batch("64MiB", "5m"),
                "compression": _compression("gzip", "zstd"),
            },
        ),
        "kafka": _sink(
            "kafka",
            "Kafka.",
            {
                "brokers": Key(
                    List(ADDRESS, at_least=1, unique=True), "Brokers to begin with.", required=True, example=["k1:9092"]
                ),
                "topic": Key(
                    _string("topic", "a topic name", "^[A-Za-z0-9._-]{1,249}$"),
                    "The topic.",
                    required=True,
                    example="ray-logs",
                ),
                "key": Key(FIELD, "Field that becomes the key of the message.", example="node"),
                "acks": Key(_enum("all", "leader", "none"), "Whose answer makes a record delivered.", default="all"),
                "sasl": Key(
                    Map(
                        {
                            "mechanism": Key(
                                _enum("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
                                "The mechanism.",
                                default="SCRAM-SHA-512",
                            ),
                            "user": Key(SECRET, "The user name, by reference.", required=True),
                            "password": Key(SECRET, "The password, by reference.", required=True),
                        }
                    ),
                    "SASL authentication.",
                    example={"user": {"env": "KAFKA_USER"}, "password": {"env": "KAFKA_PASSWORD"}},
                ),
                "tls": _TLS,
                "batch": _batch("1MiB", "1s"),
                "compression": _compression("gzip", "snappy", "lz4", "zstd"),
            },
        ),
        "http": _sink(
            "http",
            "Any HTTP endpoint that takes one JSON object a line.",
            {
                "endpoint": Key(
                    URL, "Where the records go.", required=True, example="https://collector.example.com/logs"
                ),
                "method": Key(_enum("POST", "PUT"), "The method.", default="POST"),
                "headers": Key(
                    Map(
                        rest=Union((LINE, SECRET)),
                        names=_string("header", "a header name", "^[A-Za-z0-9-]{1,64}$"),
                    ),
                    "Headers to send; a value is text, or a secret by reference.",
                    default={},
                    example={"X-Team": "ml", "X-Api-Key": {"env": "API_KEY"}},
                ),
                "auth": _AUTH,
                "tls": _TLS,
                "batch": _batch("1MiB", "1s"),
                "compression": _compression("gzip", "zstd"),
            },
        ),
        "file": _sink(
            "file",
            "A file, one JSON object a line.",
            {"path": Key(PATH, "The file.", required=True, example="/var/log/ray.jsonl")},
            remote=False,
        ),
        "console": _sink(
            "console",
            "The shipper's own output, one JSON object a line.",
            {"target": Key(_enum("stdout", "stderr"), "Which output.", default="stdout")},
            remote=False,
        ),
    },
    "Where records go.",
)

# ---------------------------------------------------------------------------------------------------------------------
# The policy

_HOP = {
    **{name: key for name, key in SINKS.options["kafka"].keys.items() if name not in ("type", "from", "when")},
    "key": Key(FIELD, "Field that becomes the key of the message: what has the same stays in order.", default="node"),
}

POLICY: Final = Map(
    {
        "version": Key(
            Scalar("version-number", "1", {"type": "integer", "const": 1}, int),
            "Version of the policy language.",
            required=True,
            example=1,
        ),
        "name": Key(
            POLICY_NAME,
            "Name of the policy. State paths and ids derive from it: a new name reads every file again.",
            required=True,
            example="ray-prod",
        ),
        "cluster": Key(LINE, "Field `cluster` of every record.", example="prod-a"),
        "targets": Key(
            Map(
                rest=Map(
                    {
                        "version": Key(
                            VERSION,
                            "Version of the shipper, quoted. Left out: the newest that shipgen knows, with a warning.",
                            example="0.57",
                        )
                    }
                ),
                names=_enum(*TARGETS),
            ),
            "The shippers that configuration is written for.",
            default={},
            example={"vector": {"version": "0.57"}},
        ),
        "collector": Key(
            Map(
                {
                    "node": Key(
                        Union(
                            (
                                _string("string", "a host name", "^.+$", 253),
                                Map({"env": Key(ENV_NAME, "Environment variable that holds it.", required=True)}),
                            )
                        ),
                        "Field `node` of every record.",
                        default_note="the kernel's host name",
                        example={"env": "NODE_NAME"},
                    ),
                    "root": Key(
                        PATH, "Prefix under which the node's files appear, e.g. /host in a container.", default="/"
                    ),
                    "state_dir": Key(
                        PATH, "Offsets, positions and disk buffers; never under Ray's tree.", default="/var/lib/shipgen"
                    ),
                    "metrics": Key(
                        Map(
                            {
                                "bind": Key(HOST, "Address to listen on.", default="127.0.0.1"),
                                "port": Key(_integer(1, 65535), "Port to listen on.", default=9598),
                            }
                        ),
                        "The shipper's own metrics.",
                        default={},
                    ),
                    "discover_every": Key(DURATION, "How soon a new file or session is noticed.", default="5s"),
                }
            ),
            "Where the shipper runs; the same for every target.",
            default={},
        ),
        "ray": Key(
            Map(
                {
                    "version": Key(VERSION, "Version of Ray, quoted.", example="2.60"),
                    "temp_dir": Key(PATH, "Ray's `--temp-dir`.", default="/tmp/ray"),
                    "application_format": Key(
                        _enum("text", "json"),
                        "Format of drivers and workers (RAY_LOGGING_CONFIG_ENCODING).",
                        example="json",
                    ),
                    "system_format": Key(
                        _enum("text", "json"), "Format of Ray's own processes (RAY_BACKEND_LOG_JSON).", example="json"
                    ),
                    "system_level": Key(LEVEL, "Level of Ray's own processes (RAY_BACKEND_LOG_LEVEL).", example="info"),
                    "driver": Key(
                        Map(
                            {
                                "forward": Key(BOOL, "Whether drivers repeat what their workers print."),
                                "prefix": Key(BOOL, "Whether repeated lines begin with `(name pid=...)`."),
                                "dedup": Key(BOOL, "Whether equal lines of several workers are folded into one."),
                                "color": Key(BOOL, "Whether the prefix is coloured."),
                            }
                        ),
                        "What drivers do with the output of their workers.",
                        example={"forward": True, "prefix": True, "dedup": False, "color": False},
                    ),
                    "serve_to_stderr": Key(
                        BOOL,
                        "Whether Serve also writes to stderr (RAY_SERVE_LOG_TO_STDERR). `false`: once, in serve/*.log.",
                        example=False,
                    ),
                }
            ),
            "Ray's own logging. A key left out leaves Ray as it is.",
            default={},
        ),
        "rotation": Key(
            Map(
                {
                    "by": Key(
                        _enum("ray", "logrotate"),
                        "Who rotates: Ray itself, or logrotate with copytruncate.",
                        default="ray",
                    ),
                    "max_size": Key(SIZE, "Size at which a file is rotated.", default="512MiB"),
                    "backups": Key(_integer(1, 10_000), "Rotated files that are kept.", default=5),
                    "expected_rate": Key(
                        RATE, "How fast the node writes; drives the arithmetic of ring time and disk.", example="2MiB/s"
                    ),
                    "downtime": Key(
                        DURATION,
                        "How long a shipper may be down without losing lines; a warning is given where a ring turns "
                        "over sooner.",
                        default="10m",
                    ),
                    "disk_budget": Key(SIZE, "A warning is given when logs could take more.", example="200GiB"),
                    "owner": Key(
                        _string(
                            "owner",
                            "a user, or user:group",
                            "^[A-Za-z_][A-Za-z0-9_.-]{0,31}(:[A-Za-z_][A-Za-z0-9_.-]{0,31})?$",
                        ),
                        "Who logrotate runs as (`su`): Ray's directories are writable by all.",
                        example="ray:ray",
                    ),
                }
            ),
            "How files are rotated. Left out: nothing is rendered, and they grow.",
        ),
        "verl": Key(
            Map(
                {
                    "engine_worker": Key(
                        Map(
                            {
                                "level": Key(
                                    _enum(*verl.LEVELS), "Least level that is written (log.level).", example="info"
                                ),
                                "heartbeat": Key(BOOL, "Whether heartbeats are logged (log.heartbeat).", example=False),
                                "execution_trace": Key(
                                    BOOL,
                                    "Whether each execution is traced (log.execution.trace).",
                                    example=False,
                                ),
                                "compression_level": Key(
                                    _integer(1, 9),
                                    "1 is fastest, 9 is smallest (log.compression.level); 5 or more where the network "
                                    "is under 1 Gbit/s.",
                                    example=3,
                                ),
                                "checkpoint_interval": Key(
                                    DURATION, "Time between checkpoints (checkpoint.interval).", example="300s"
                                ),
                                "metrics": Key(
                                    Map(
                                        {
                                            "port": Key(_integer(1, 65535), "Port that it listens on.", default=9091),
                                            "path": Key(
                                                _string("path", "a path of a URL", "^/[A-Za-z0-9._/-]*$", 256),
                                                "Path that it answers.",
                                                default="/metrics",
                                            ),
                                            "interval": Key(DURATION, "How often they are renewed.", default="10s"),
                                        }
                                    ),
                                    "Metrics of the JVM, for Prometheus (-Dmetrics.*).",
                                    example={"port": 9091},
                                ),
                            }
                        ),
                        "The engine worker of the articles: verl/worker.properties, verl/engine_worker.conf, "
                        "verl/jvm.options.",
                        example={"level": "info"},
                    ),
                    "upstream": Key(
                        Map(
                            {
                                "level": Key(
                                    _enum("debug", "info", "warn", "error", "fatal"),
                                    "Least level of its modules (VERL_LOGGING_LEVEL).",
                                    example="info",
                                ),
                                "metrics_file": Key(
                                    PLAIN_PATH,
                                    "File that metrics are written to (VERL_FILE_LOGGER_PATH).",
                                    example="/var/log/verl/metrics.jsonl",
                                ),
                                "metrics_root": Key(
                                    PLAIN_PATH,
                                    "Directory below which each experiment has its file (VERL_FILE_LOGGER_ROOT).",
                                    example="/var/log/verl",
                                ),
                            },
                            at_most_one_of=("metrics_file", "metrics_root"),
                        ),
                        "The open-source package: verl/verl.env.",
                        example={"level": "info"},
                    ),
                }
            ),
            "VeRL's own logging. A key left out leaves VeRL as it is.",
            default={},
        ),
        "sources": Key(
            Map(rest=SOURCES, names=NAME, at_least=1),
            "Files to read, by name.",
            required=True,
            example={"ray": {"type": "ray"}},
        ),
        "parsing": Key(
            Map(
                {
                    "timezone": Key(
                        TIMEZONE,
                        "Zone of times that carry none: `local` (the node's) or an IANA name.",
                        default="local",
                        example="Europe/Berlin",
                    ),
                    "fingerprint": Key(
                        _enum("sha3-256"),
                        "Adds the field `fingerprint`: a hash of node, session, file, time and text of the record as "
                        "the sink gets it. In Elasticsearch and OpenSearch it is the document's id.",
                        example="sha3-256",
                    ),
                    "rules": Key(List(RULE, merge_by="name"), "What happens to records, in order.", default=[]),
                }
            ),
            "What happens to records between source and sink.",
            default={},
        ),
        "sinks": Key(
            Map(rest=SINKS, names=NAME, at_least=1),
            "Where records go, by name.",
            required=True,
            example={"loki": {"type": "loki", "endpoint": "http://loki:3100"}},
        ),
        "topology": Key(
            Map(
                {
                    "via": Key(
                        _enum("kafka"),
                        "`kafka`: agents produce records to Kafka; an aggregator (Vector) takes them to the sinks.",
                        required=True,
                        example="kafka",
                    ),
                    **_HOP,
                    "group": Key(
                        _string("group", "the name of a consumer group", "^[A-Za-z0-9._-]{1,249}$"),
                        "Consumer group of the aggregators, which share the work.",
                        default_note="`shipgen-` and the policy's name",
                        example="shipgen-ray-prod",
                    ),
                }
            ),
            "A hop between the nodes and the sinks. Left out: every node ships to the sinks itself.",
            example={"via": "kafka", "brokers": ["k1:9092"], "topic": "ray-logs"},
        ),
        "relay": Key(
            Map(
                {
                    "target": Key(_enum(*TARGETS), "The shipper that forwards.", required=True, example="vector"),
                    "address": Key(ADDRESS, "Where it listens.", default="127.0.0.1:6044"),
                }
            ),
            "A second shipper that makes the records: `vector` for Filebeat, which cannot reach every sink on its own, "
            "or `fluentbit` for a Fluentd that is to do without plugins of shipgen's.",
            example={"target": "vector"},
        ),
    }
)


# ---------------------------------------------------------------------------------------------------------------------
# Reading the tree


def json_types(node: Node) -> tuple[str, ...]:
    """The JSON types a value of ``node`` can have."""
    match node:
        case Scalar():
            return (str(node.schema["type"]),)
        case List():
            return ("array",)
        case Union():
            return tuple(name for option in node.options for name in json_types(option))
        case Ref():
            return json_types(DEFINITIONS[node.name])
        case _:
            return ("object",)


def _is(value: object, json_type: str) -> bool:
    match json_type:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer" | "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def narrow(node: Node | None, value: object) -> Node | None:
    """``node`` with references, unions and variants settled for ``value``; None where the value fits none of them."""
    match node:
        case Ref():
            return narrow(DEFINITIONS[node.name], value)
        case Union():
            fitting = [o for o in node.options if any(_is(value, name) for name in json_types(o))]
            return narrow(fitting[0], value) if fitting else None
        case Variants():
            kind = value.get("type") if isinstance(value, dict) else None
            return node.options.get(kind) if isinstance(kind, str) else None
        case _:
            return node


def child(node: Node | None, value: object, key: str | int) -> Node | None:
    """The node of ``value[key]`` where ``value`` is read as ``node``."""
    match narrow(node, value):
        case Map(keys=keys, rest=rest):
            return keys[key].node if isinstance(key, str) and key in keys else rest
        case List(item=item):
            return item
        case _:
            return None


def find(path: Sequence[str | int], value: object, node: Node = POLICY) -> Node | None:
    """The node at ``path`` of the policy ``value``."""
    found: Node | None = node
    for key in path:
        found = child(found, value, key)
        try:
            value = value[key]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            value = None
    return found


def scalars(node: Node | None) -> list[Scalar]:
    """The kinds of single value that a node takes."""
    match node:
        case Scalar():
            return [node]
        case Union(options=options):
            return [scalar for option in options for scalar in scalars(option)]
        case _:
            return []


def fill(node: Node, value: Any) -> Any:
    """``value`` with defaults filled in and units resolved. What does not fit the model is left as it is.

    Keys come in the order of the model, names in alphabetical order: the order in the file means nothing.
    """
    match narrow(node, value):
        case Map(keys=keys, rest=rest) if isinstance(value, dict):
            filled = {}
            for name, key in keys.items():
                if name in value:
                    filled[name] = fill(key.node, value[name])
                elif key.default is not MISSING:
                    filled[name] = fill(key.node, copy.deepcopy(key.default))
            others = sorted(name for name in value if name not in keys)
            filled.update({name: fill(rest, value[name]) if rest is not None else value[name] for name in others})
            return filled
        case List(item=item) if isinstance(value, list):
            return [fill(item, one) for one in value]
        case Scalar(convert=convert) if convert is not None and any(_is(value, t) for t in json_types(node)):
            try:
                return convert(value)
            except (ValueError, OverflowError):
                return value
        case _:
            return value


def fill_computed(data: dict[str, Any]) -> None:
    """The defaults that depend on other parts of the policy, filled into ``data`` in place."""
    sources = data.get("sources")
    names = list(sources) if isinstance(sources, dict) else []
    if isinstance(topology := data.get("topology"), dict):
        topology.setdefault("group", f"shipgen-{data.get('name', '')}")
    sinks = data.get("sinks")
    for sink in sinks.values() if isinstance(sinks, dict) else ():
        if not isinstance(sink, dict):
            continue
        sink.setdefault("from", list(names))
        match sink.get("type"):
            case "loki":
                _fill_loki(sink, data)
            case "elasticsearch" | "opensearch" if "index" not in sink:
                node = SINKS.options[sink["type"]].keys["data_stream"].node
                sink.setdefault("data_stream", fill(node, {}))


def _fill_loki(sink: dict[str, Any], data: dict[str, Any]) -> None:
    labels = sink.get("labels")
    if not isinstance(labels, dict):
        return
    absent = set() if "cluster" in data else {"cluster"}
    labels.setdefault("static", {"job": data.get("name", "")})
    labels.setdefault("fields", [name for name in DEFAULT_LABEL_FIELDS if name not in absent])
    fields = labels["fields"] if isinstance(labels["fields"], list) else []
    left_out = {*ALWAYS_METADATA, "message", "raw", *absent, *(f for f in fields if isinstance(f, str))}
    names = [name for name, kind in RECORD_FIELDS.items() if kind in ("string", "number")]
    sources = data.get("sources")
    taken = [s for n, s in sources.items() if n in sink["from"]] if isinstance(sources, dict) else []
    if any(isinstance(source, dict) and source.get("type") == "verl" for source in taken):
        names += verl.OWN_FIELDS
    parsing = data.get("parsing")
    if isinstance(parsing, dict) and "fingerprint" in parsing:
        names.append("fingerprint")
    sink.setdefault("metadata", [name for name in names if name not in left_out])


def named_lists(node: Node = POLICY, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """The lists of named things, by path, with the key that names an item."""
    found: dict[tuple[str, ...], str] = {}
    match node:
        case Map(keys=keys):
            for name, key in keys.items():
                found |= named_lists(key.node, (*path, name))
        case List(merge_by=merge_by) if merge_by:
            found[path] = merge_by
    return found


def leaves() -> list[tuple[str, ...]]:
    """Every leaf of the language as a path: ``*`` for a name, ``[]`` for a list item, ``<loki>`` for a variant.

    >>> ("sinks", "<loki>", "batch", "max_bytes") in leaves()
    True
    """
    return list(dict.fromkeys(_leaves(POLICY, ())))


def _leaves(node: Node, path: tuple[str, ...], inside: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    match node:
        case Scalar():
            yield path
        case Ref(name=name):
            if name in inside:
                yield path
            else:
                yield from _leaves(DEFINITIONS[name], path, (*inside, name))
        case Union(options=options):
            for option in options:
                yield from _leaves(option, path, inside)
        case List(item=item):
            # A list of scalars is one leaf; a list of maps has the leaves of its items.
            if all(isinstance(one, Scalar) for one in (item.options if isinstance(item, Union) else (item,))):
                yield path
            else:
                yield from _leaves(item, (*path, "[]"), inside)
        case Map(keys=keys, rest=rest):
            for name, key in keys.items():
                yield from _leaves(key.node, (*path, name), inside)
            if isinstance(rest, Variants):
                yield from _leaves(rest, path, inside)
            elif rest is not None:
                yield from _leaves(rest, (*path, "*"), inside)
        case Variants(options=variants):
            for name, variant in variants.items():
                yield from _leaves(variant, (*path, f"<{name}>"), inside)
