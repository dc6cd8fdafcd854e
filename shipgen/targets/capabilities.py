"""What each target can do with each leaf of the policy: one table, as data.

A row speaks of the leaves that its pattern matches (`*` is one step, `**` any number at the end). The first row of a
target that matches a leaf, the version and the value counts. Diagnostics, `explain`, the docs page and the tests read
this table; a test asserts that no leaf is without a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How well a target does what a leaf says."""

    EXACT = "exact"
    APPROXIMATED = "approximated"
    UNSUPPORTED = "unsupported"
    NOT_YET = "not-yet"
    ELSEWHERE = "elsewhere"
    """Not this target's: Ray's environment, logrotate, another target or `explain` reads the leaf."""
    RELAYED = "relayed"
    """The relay's: the row of that target counts. Without a relay the leaf is unsupported."""


@dataclass(frozen=True, slots=True)
class Row:
    """``text`` says how a leaf is approximated or why it is unsupported, ``way_out`` what to do instead. ``values``
    limits a row to certain values; ``since`` and ``before`` to versions (major, minor)."""

    leaf: str
    status: Status = Status.EXACT
    text: str = ""
    way_out: str = ""
    values: frozenset[str] = frozenset()
    since: tuple[int, int] = (0, 0)
    before: tuple[int, int] = (1_000_000, 0)


_E, _A, _U, _N, _X = Status.EXACT, Status.APPROXIMATED, Status.UNSUPPORTED, Status.NOT_YET, Status.ELSEWHERE
_R = Status.RELAYED

SHARED: tuple[Row, ...] = (
    Row("version", _X, "version of the policy language"),
    Row("targets.**", _X, "which shippers to render, and their versions"),
    Row("ray.version", _X, "for `explain`"),
    Row("ray.temp_dir"),
    Row("ray.**", _X, "Ray's environment: ray/ray.env and ray/driver.env"),
    Row("rotation.by"),
    Row("rotation.**", _X, "Ray's environment, logrotate and `explain`"),
    Row("verl.**", _X, "VeRL's own settings: verl/"),
    Row("sinks.*.retention.**", _X, "settings of the server: retention/"),
    Row("relay.**", _X, "for targets that cannot reach a sink on their own"),
)
"""Rows that hold for every target."""


def later(*sinks: str) -> tuple[Row, ...]:
    """Rows of sinks that a target does not render yet."""
    return tuple(Row(f"sinks.<{sink}>.**", _N, "this sink comes with a later release", "use another target for it")
                 for sink in sinks)


NOT_GIVEN = "not given"
MOVED = "with files that Ray moves"
"""Values that no policy has: for rows about what a policy leaves out, or implies."""

_A_RELAY = "add relay: {target: vector}"
_SHA3 = "leave it out, or use the target vector or fluentd"
_ONLY_LOKI = "Promtail writes to Loki only"
_FORGETS = "before 5.1 Fluent Bit forgets how far it had read a file that was renamed while it ran, when it stops, "
_AT_LEAST_ONCE = frozenset({"at_least_once"})
_OTHER_TARGET = "use another target for this sink, such as vector or fluentbit, with a policy of its own"

TABLE: dict[str, tuple[Row, ...]] = {
    "vector": (
        Row("rotation.by", _A, "Vector does not notice that a file was truncated; it knows files that logrotate "
            "truncates by their first lines instead, which worker and ray_client_server files do not allow: of those, "
            "what is written after a truncation is missing until the file is as long as before (310 of 1,500 lines "
            "arrived)", "use by: ray", values=frozenset({"logrotate"})),
        Row("sources.*.ignore_older", _A, "the age is judged once, when Vector starts, and older files are followed "
            "from their end; Vector 0.50 to 0.57"),
        Row("sources.*.on_long_line", _A, "lines up to 8 MiB are read and cut; longer ones are discarded whole, since "
            "Vector has no other way", values=frozenset({"truncate"})),
        Row("sources.<file>.multiline.max_lines", _A, "Vector joins lines without a limit; longer entries are cut to "
            "`max_lines` and marked `truncated`"),
        Row("parsing.rules[].limit.records", _A, "Vector's throttle refills steadily, so up to twice `records` can "
            "pass in one period after a quiet one; records without a field of `by` share one count"),
        Row("parsing.rules[].sample.by", _A,
            "by a hash of the field; records without the field are sampled one by one"),
        Row("sinks.*.buffer.when_full", _U, "Vector's disk buffer cannot drop its oldest records",
            "use block or drop_newest", values=frozenset({"drop_oldest"})),
        Row("sinks.*.tls.server_name", _U, "Vector wants the endpoint's own host in the certificate whatever name it "
            "is given, so it would never connect", "put a name that the certificate carries into the endpoint; "
            "/etc/hosts can say where that is"),
        *(Row(f"sinks.<{sink}>.delivery", _A, "Vector does not try again what is answered with 4xx, but for 429: those "
              "records are lost, and counted (three answers of 401: 103 of 1,451)", values=frozenset({"at_least_once"}))
          for sink in ("elasticsearch", "opensearch")),
        Row("sinks.<loki>.delivery", _A, "Vector does not try again what is answered with 4xx, but for 429: those "
            "records are lost, and counted (five seconds of 401: 594 of 2,996); where the disk under `state_dir` is "
            "full, its buffer breaks and nothing more is delivered until that is removed (1,592 of 2,324)",
            "watch `component_discarded_events_total`; give `state_dir` a disk with room for every sink's buffer",
            values=frozenset({"at_least_once"})),
        Row("sinks.<http>.delivery", _A, "before 0.56 Vector does not try again what is answered with 4xx, but for "
            "429: those records are lost, and counted", "use 0.56 or later, which gives up only at 400, 413 and 422",
            values=frozenset({"at_least_once"}), before=(0, 56)),
        Row("sinks.<kafka>.delivery", _A, "what the broker refuses for good, such as a topic without the right to "
            "write, librdkafka gives up: those records are lost, and counted (one such answer: 1,332 of 1,451)",
            values=frozenset({"at_least_once"})),
        Row("sinks.<kafka>.retry.give_up_after"),
        Row("sinks.*.retry.give_up_after", values=frozenset({"never"})),
        Row("sinks.*.retry.give_up_after", _A, "Vector counts attempts; as many are made as the pauses fill that time"),
        *SHARED,
        Row("**"),
    ),
    "fluentbit": (
        Row("parsing.fingerprint", _U, "neither Fluent Bit nor its Lua has SHA-3", _SHA3),
        Row("rotation.by", _A, "lines written between logrotate's copy and its truncation are in neither file "
            "(1 of 1,573 in seven rotations)",
            "use by: ray", values=frozenset({"logrotate"})),
        Row("sources.*.on_long_line", _A, "lines up to 8 MiB are read and cut; longer ones are skipped before 4.2",
            values=frozenset({"truncate"}), before=(4, 2)),
        Row("sources.<ray>.rotated", _A, _FORGETS + "so backups are left out: what is rotated while it is stopped is "
            "missing (150 to 250 of 1,104 entries where files turned around a restart), and files that moved to `old/` "
            "meanwhile come twice (68)", "use 5.1, or rotated: include", values=frozenset({"auto"}), before=(5, 1)),
        Row("sources.*.rotated", _A, _FORGETS + "and reads it again from its beginning when it starts (278 of 1,104 "
            "entries came twice where files turned around a restart)", "use 5.1", values=frozenset({"include"}),
            before=(5, 1)),
        Row("sources.<file>.multiline.timeout", _A, "Fluent Bit counts it from when it last let entries go, not from "
            "an entry's last line: one that is being written at that moment is split (1 of 2,156)"),
        Row("sources.<file>.multiline.max_lines", _A, "Fluent Bit joins lines up to 8 MiB; longer entries are cut to "
            "`max_lines` and marked `truncated`"),
        Row("parsing.rules[].sample.by", _A,
            "by a hash of the field; records without the field are sampled one by one"),
        Row("parsing.rules[].limit.records", _A, "counted in periods that follow each other, so up to twice `records` "
            "can pass in a time as long as one that spans two of them"),
        Row("sinks.*.batch.max_bytes", _A, "a request carries what has gathered, up to a chunk of 2 MB"),
        Row("sinks.*.batch.max_wait", _A, "one for all sinks: the shortest counts"),
        Row("sinks.<s3>.buffer.max_size", _A, "counted for each folder of `prefix.by` alone"),
        Row("sinks.*.buffer.max_size", _A, "counted in chunks of 2 MB, full or not: less than `max_size` may be held"),
        Row("sinks.*.buffer.when_full", _U, "Fluent Bit cannot drop what comes in alone", "use block or drop_oldest",
            values=frozenset({"drop_newest"})),
        Row("sinks.*.retry.max_backoff", _A, "one for all sinks: the longest counts"),
        Row("sinks.<s3>.retry.give_up_after", _A, "before 5.0 Fluent Bit throws an object away after five attempts "
            "(175 of 193 records where the server answered 503 for a minute)", "use 5.1", before=(5, 0)),
        Row("sinks.<s3>.delivery", _U, "before 5.0 Fluent Bit throws an object away after five attempts", "use 5.1",
            values=_AT_LEAST_ONCE, before=(5, 0)),
        Row("sinks.<s3>.delivery", _U, "Fluent Bit 5.0.9, killed while the server was down, lost 18 of 193 records",
            "use 5.1", values=_AT_LEAST_ONCE, before=(5, 1)),
        Row("sinks.*.retry.give_up_after", values=frozenset({"never"})),
        Row("sinks.*.retry.give_up_after", _A,
            "Fluent Bit counts attempts; as many are made as the pauses fill that time"),
        Row("sinks.<kafka>.delivery", _U, "Fluent Bit takes for delivered what waits in the memory of librdkafka: "
            "killed while the brokers were down, it lost 7,936 of 7,936",
            "leave delivery out, or use the target vector", values=_AT_LEAST_ONCE),
        *(Row(f"sinks.<{sink}>.delivery", _U, "Fluent Bit takes for delivered a request of which the server took a "
              "part: what a server without room turned away is lost (79 of 193)",
              "leave delivery out, or use the target vector", values=_AT_LEAST_ONCE)
          for sink in ("elasticsearch", "opensearch")),
        Row("sinks.<http>.delivery", _A, "an answer of 400 to 499 but 408 and 429 throws its records away",
            values=_AT_LEAST_ONCE),
        Row("sinks.*.delivery", _A, "when Fluent Bit is killed (SIGKILL), the entry that is open in each file at that "
            "moment is lost (measured: 3 of 2,151); where the disk under `state_dir` is full, all that is read "
            "meanwhile is (644 of 2,324)", values=_AT_LEAST_ONCE),
        Row("sinks.<loki>.compression", values=frozenset({"auto", "none", "gzip"})),
        Row("sinks.<loki>.compression.codec", values=frozenset({"gzip"})),
        Row("sinks.<loki>.compression", _U, "Fluent Bit compresses for Loki with gzip only", "use gzip or auto"),
        Row("sinks.<loki>.compression.codec", _U, "Fluent Bit compresses for Loki with gzip only", "use gzip or auto"),
        Row("sinks.<loki>.compression.level", _U, "Fluent Bit has one level of gzip", "leave `level` out"),
        Row("sinks.<loki>.line", _A, "Fluent Bit takes the CR from the end of each line, also inside an entry of "
            "several lines (none in 10,579 recorded entries)", values=frozenset({"raw"})),
        Row("sinks.<elasticsearch>.compression.level", _U, "Fluent Bit has one level of gzip", "leave `level` out"),
        Row("sinks.<opensearch>.compression.level", _U, "Fluent Bit has one level of gzip", "leave `level` out"),
        Row("sinks.<http>.compression.level", _U, "Fluent Bit has one level of each codec", "leave `level` out"),
        Row("sinks.<opensearch>.auth.api_key.**", _U, "Fluent Bit sends no API keys to OpenSearch", "use basic"),
        Row("sinks.<kafka>.tls.server_name", _U, "librdkafka checks a broker's certificate for the address that the "
            "broker goes by", "leave it out; the certificate must carry that name"),
        Row("sinks.<console>.target", _U, "Fluent Bit prints records to stdout only", "use target: stdout",
            values=frozenset({"stderr"})),
        Row("sinks.<s3>.prefix.date", _A, "an object's folder is that of the first record in it",
            values=frozenset({"daily", "hourly"})),
        Row("sinks.<s3>.tls.verify", _A, "Fluent Bit looks whether a known authority signed the certificate, not for "
            "whom (a server with the certificate of another host got all objects)", "set ca_file to an authority "
            "of your own", values=frozenset({"True"})),
        *(Row(f"sinks.<http>.compression{key}", _U, "Fluent Bit compresses for HTTP with gzip alone before 4.0",
              "use gzip, or a newer version", values=frozenset({"zstd"}), before=(4, 0))
          for key in ("", ".codec")),
        *(Row(f"sinks.<s3>.compression{key}", _U, "Fluent Bit compresses objects with gzip alone before 4.1",
              "use gzip, or a newer version", values=frozenset({"zstd"}), before=(4, 1)) for key in ("", ".codec")),
        Row("sinks.<s3>.path_style", values=frozenset({"True"})),
        Row("sinks.<s3>.path_style", _A, "Fluent Bit always puts the bucket into the path"),
        Row("sinks.<s3>.sse", _U, "Fluent Bit asks for no encryption", "let the bucket encrypt by default"),
        Row("sinks.<s3>.compression.level", _U, "Fluent Bit has one level of each codec", "leave `level` out"),
        *SHARED,
        Row("**"),
    ),
    "promtail": (
        Row("topology.**", _U, "Promtail writes to Loki only", "use another target for the agents"),
        Row("parsing.fingerprint", _U, "Promtail's templates have no SHA-3", _SHA3),
        Row("collector.node", _A, "Promtail's stages do not know the host's name; `node` is the variable HOSTNAME, "
            "which containers have and services may lack, and absent without it",
            "set HOSTNAME where Promtail starts, or collector.node", values=frozenset({NOT_GIVEN})),
        Row("rotation.by", _A, "Promtail knows files by their path and reads no backups: what Ray rotates while "
            "Promtail is stopped, or before Promtail has found a file (`collector.discover_every`), is lost (15 "
            "rotations while it was stopped and 20 in the first second of a session: 170 and 100 of 1,104)",
            "use a target that follows files through renames, such as vector", values=frozenset({"ray"})),
        Row("sources.<ray>.components", _A, "Promtail knows files by their path and reads one that Ray moved to "
            "logs/old/ again from its beginning (8 files of 17 entries: 136 repeats)",
            "with RAY_LOG_MONITOR_MAX_OPEN_FILES above the number of worker files on a node Ray moves none",
            values=frozenset({MOVED})),
        Row("rotation.by", _A, "logrotate's copies are not read; what Promtail has not read when a file is truncated "
            "is lost (32 of 1,759 lines in seven rotations)", "use by: ray", values=frozenset({"logrotate"})),
        Row("sources.*.start", _U, "Promtail reads every file that it does not know from its beginning",
            "use start: beginning, or another target", values=frozenset({"end"})),
        Row("sources.*.rotated", _U, "Promtail knows files by their path, so it would read every backup again from "
            "its beginning", "use rotated: exclude or auto, or another target", values=frozenset({"include"})),
        Row("sources.*.ignore_older", _U, "Promtail reads every file that its globs match, however old",
            "leave it out, or use another target"),
        Row("sources.<file>.multiline.start", _A, "lines before the first start arrive one by one"),
        Row("sources.<file>.multiline.max_lines", _A, "Promtail joins lines without a limit; longer entries are cut to "
            "`max_lines` and marked `truncated`"),
        Row("parsing.rules[].limit.records", _A, "the count is kept for each scrape job (a kind of files that are read "
            "alike), and refills steadily, so up to twice `records` can pass in one period after a quiet one; records "
            "without a field of `by` share one count"),
        Row("parsing.rules[].sample.by", _A, "by a hash of the field; records without the field are sampled one by "
            "one"),
        Row("sinks.<file>.**", _U, _ONLY_LOKI, _OTHER_TARGET),
        Row("sinks.<console>.**", _U, _ONLY_LOKI, _OTHER_TARGET),
        Row("sinks.<elasticsearch>.**", _U, _ONLY_LOKI, _OTHER_TARGET),
        Row("sinks.<opensearch>.**", _U, _ONLY_LOKI, _OTHER_TARGET),
        Row("sinks.<s3>.**", _U, _ONLY_LOKI, _OTHER_TARGET),
        Row("sinks.<kafka>.**", _U, _ONLY_LOKI, _OTHER_TARGET),
        Row("sinks.<http>.**", _U, _ONLY_LOKI, _OTHER_TARGET),
        Row("sinks.<loki>.delivery", _A, "Promtail does not try again what is answered with 4xx, but for 429, and "
            "counts lines as read before Loki has them: five seconds of 401 lost 644 of 1,316, killed while Loki was "
            "down it lost 746 of 2,149", "write delivery: best_effort if that may be; or use a target that keeps what "
            "is not delivered, such as vector", values=frozenset({NOT_GIVEN})),
        Row("sinks.<loki>.delivery", _U, "Promtail counts lines as read before Loki has them: killed while Loki was "
            "down, it lost 746 of 2,149", "leave delivery out, or use a target that keeps what is not delivered, "
            "such as vector", values=frozenset({"at_least_once"})),
        Row("sinks.<loki>.buffer.max_size", _U, "Promtail has no disk buffer; while Loki is down it stops reading",
            "leave buffer out, or use another target"),
        Row("sinks.<loki>.buffer.when_full", _U, "Promtail has no disk buffer; while Loki is down it stops reading",
            "leave buffer out, or use another target"),
        Row("sinks.<loki>.compression", values=frozenset({"auto", "snappy"})),
        Row("sinks.<loki>.compression.codec", values=frozenset({"snappy"})),
        Row("sinks.<loki>.compression", _U, "Promtail compresses with snappy, always", "use compression: auto"),
        Row("sinks.<loki>.compression.codec", _U, "Promtail compresses with snappy, always", "use compression: auto"),
        Row("sinks.<loki>.compression.level", _U, "snappy has no levels", "use compression: auto"),
        Row("sinks.<loki>.retry.give_up_after", values=frozenset({"never"})),
        Row("sinks.<loki>.retry.give_up_after", _A, "Promtail counts attempts; as many are made as the pauses fill "
            "that time"),
        Row("sinks.<loki>.labels.fields", _A, "Loki would refuse it from Promtail; `?` is sent",
            values=frozenset({"U+FFFD or bytes that are no text in a value"})),
        *(Row(leaf, _U, "Promtail sends the same to all sinks", "let sinks differ in endpoint, tenant, auth, tls, "
              "batch and retry alone; or run a second Promtail with a policy of its own; or use another target",
              values=frozenset({"not that of the first sink"}))
          for leaf in ("sinks.<loki>.from", "sinks.<loki>.when.**", "sinks.<loki>.labels.**", "sinks.<loki>.metadata",
                       "sinks.<loki>.line", "sinks.<loki>.late", "sinks.<loki>.server.**", "parsing.rules[].sinks")),
        *SHARED,
        Row("**"),
    ),
    "fluentd": (
        Row("rotation.by", _A, "lines written between logrotate's copy and its truncation are in neither file "
            "(none of 1,745 in seven rotations)",
            "use by: ray", values=frozenset({"logrotate"})),
        Row("sources.*.ignore_older", _A, "a file that is written to again after that long is read from its "
            "beginning"),
        Row("sources.*.on_long_line", _A, "lines up to 8 MiB are read and cut; longer ones are discarded whole, since "
            "Fluentd has no other way", values=frozenset({"truncate"})),
        Row("sources.*.on_long_line", _A, "with it the entry of several lines that is open in a file is lost when "
            "Fluentd is killed with SIGKILL (24 of 1,104; none without it)", values=frozenset({"skip"})),
        Row("sources.<file>.multiline.max_lines", _A, "Fluentd joins lines without a limit; longer entries are cut to "
            "`max_lines` and marked `truncated`"),
        Row("parsing.rules[].sample.by", _A,
            "by a hash of the field; records without the field are sampled one by one"),
        Row("parsing.rules[].limit.records", _A, "counted in periods that follow each other, so up to twice `records` "
            "can pass in a time as long as one that spans two of them"),
        Row("relay.**", _X, "with target: fluentbit Fluentd sends lines to a Fluent Bit and needs no plugins of ours; "
            "another relay is not for Fluentd"),
        Row("sinks.*.tls.server_name", _U, "Ruby's clients check the name that they connect to",
            "use that name as the address, or the target vector"),
        Row("sinks.<kafka>.tls.verify", _U, "ruby-kafka checks every broker's certificate",
            "give the authority as `ca_file`", values=frozenset({"False"})),
        *(Row(leaf, _U, "the output for Loki sends JSON, which snappy is not for", "use gzip or auto",
              values=frozenset({"snappy"}))
          for leaf in ("sinks.<loki>.compression", "sinks.<loki>.compression.codec")),
        *(Row(leaf, _U, "ruby-kafka would need a gem for it that shipgen was not run with", "use gzip or zstd",
              values=frozenset({"snappy", "lz4"}))
          for leaf in ("sinks.<kafka>.compression", "sinks.<kafka>.compression.codec")),
        Row("sinks.<kafka>.compression.level", _U, "ruby-kafka has one level of each codec", "leave `level` out"),
        Row("sinks.*.batch.max_bytes", _A, "counted as the records lie in the buffer, before they are compressed"),
        Row("sinks.*.buffer.when_full", _U, "Fluentd cannot drop what comes in alone", "use block or drop_oldest",
            values=frozenset({"drop_newest"})),
        Row("sinks.*.retry.give_up_after", values=frozenset({"never"})),
        Row("sinks.*.retry.give_up_after", _A, "when it gives up, Fluentd throws away all that waits for the sink"),
        *(row for row in SHARED if row.leaf != "relay.**"),
        Row("**"),
    ),
    "filebeat": (
        Row("relay.target", values=frozenset({"vector"})),
        Row("relay.target", _U, "Filebeat's lines go to Vector", "use target: vector"),
        Row("relay.address"),
        Row("rotation.by", _A, "what Filebeat has not read when logrotate truncates a file is lost (57 of 1,703 "
            "lines in seven rotations)",
            "use by: ray", values=frozenset({"logrotate"})),
        Row("rotation.by", _A, "of a file that is renamed within seconds of its start Filebeat can miss lines, or read "
            "some twice (rings that turned every two seconds on a machine under load: 20 of 876 missing, 16 twice; "
            "none without load)",
            "let rings last much longer than `collector.discover_every`: a larger `rotation.max_size`",
            values=frozenset({"ray"})),
        Row("sources.*.start", _A, "files that are being written to when Filebeat starts for the first time are read "
            "from their beginning (5 of 5; 15 of 15 others from their end)", "use start: beginning",
            values=frozenset({"end"})),
        Row("sources.*.ignore_older", _A, "older files are followed from their end"),
        Row("sources.*.on_long_line", _A, "lines up to 8 MiB are read and cut; of longer ones Filebeat keeps the head, "
            "and none of those over 32 MiB", values=frozenset({"truncate"})),
        Row("sources.*.on_long_line", _A, "a line that is left out still parts the entries around it",
            values=frozenset({"skip"})),
        *(Row(f"sinks.<{sink}>.**", _R, "Filebeat has no output for it", _A_RELAY)
          for sink in ("loki", "s3", "http", "opensearch")),
        *(Row(f"sinks.<{sink}>.**", _R, "Filebeat's own output for it comes with a later release", _A_RELAY)
          for sink in ("elasticsearch", "kafka", "file", "console")),
        Row("parsing.**", _R, "the relay makes the record", _A_RELAY),
        Row("sources.<file>.multiline.max_lines", _R, "the relay makes the record", _A_RELAY),
        *(row for row in SHARED if row.leaf not in ("relay.**", "sinks.*.retention.**")),
        Row("**"),
    ),
}


def _matches(pattern: str, leaf: tuple[str, ...]) -> bool:
    parts = tuple(pattern.replace("[]", ".[]").split("."))
    if parts[-1] == "**":
        parts = parts[:-1]
        leaf = leaf[: len(parts)] if len(leaf) >= len(parts) else leaf
    return len(parts) == len(leaf) and all(p == s or (p == "*" and s != "[]") for p, s in zip(parts, leaf, strict=True))


def rows(target: str, leaf: tuple[str, ...]) -> list[Row]:
    """Rows of a target about a leaf, in order. A variant's step is written `<loki>`; `*` in a row matches it too."""
    return [r for r in TABLE[target] if _matches(r.leaf, leaf)]


def look_up(target: str, version: tuple[int, int], leaf: tuple[str, ...], value: object = None) -> Row:
    """The row that counts for a leaf with a value. Raises KeyError where the table has a gap."""
    for row in rows(target, leaf):
        if row.since <= version < row.before and (not row.values or value is None or str(value) in row.values):
            return row
    raise KeyError(f"{target} has no row for {'.'.join(leaf)}")


def deviations(target: str, version: tuple[int, int], leaves: Iterable[tuple[str, ...]]) -> list[Row]:
    """Rows that say that a target does some leaf, with some value, not exactly in a version; in the table's order."""
    found = {
        row
        for leaf in leaves
        for row in _counting(rows(target, leaf), version)
        if row.status not in (Status.EXACT, Status.ELSEWHERE)
    }
    return [row for row in TABLE[target] if row in found]


def _counting(about: Iterable[Row], version: tuple[int, int]) -> Iterator[Row]:
    """Rows that count for some value of a leaf: those limited to values, up to the first that holds for all others."""
    for row in about:
        if row.since <= version < row.before:
            yield row
            if not row.values:
                return


def in_words(row: Row) -> str:
    """The leaves that a row speaks of, with the values it is limited to: ``sinks.*.buffer.when_full: drop_oldest``."""
    return row.leaf.removesuffix(".**") + (f": {' | '.join(sorted(row.values))}" if row.values else "")
