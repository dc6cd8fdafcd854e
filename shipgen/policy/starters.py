"""Short commented policies to begin with: what `shipgen init` writes. A test loads each of them."""

from __future__ import annotations

_HEAD = """\
# yaml-language-server: $schema=policy.schema.json
# `shipgen schema > policy.schema.json` gives editors completion; `shipgen explain policy.yaml` says what this does.
version: 1
name: {name}                # state paths and ids derive from it: a new name reads every file again
# cluster: prod-a           # field `cluster` of every record, and a label

targets:
  vector: {{version: "0.57"}} # pin the version that your nodes run
"""

_SINK = """
sinks:
  loki:
    type: loki
    endpoint: http://loki:3100
    # tenant: ml
    # auth: {bearer: {file: /run/secrets/loki-token}}   # secrets are references, never values
    # when: {level: {at_least: info}}                   # a record without a level (a print, a traceback) passes
"""

_RAY = """
# Ray's files do not rotate by themselves: this renders ray/ray.env for `ray start`, and logrotate for the rest.
rotation: {max_size: 512MiB, backups: 5}

sources:
  ray:
    type: ray               # every line of the cluster once: raylet, GCS, workers, drivers, Serve, Data, Train ...

# parsing:
#   timezone: Europe/Berlin # Ray writes local time without a zone; left out: the zone of the node
#   rules:
#     - {name: no-heartbeats, when: {component: raylet, message: {matches: heartbeat}}, drop: true}
#     - {name: no-emails, redact: {kind: email}}
"""

_FILE = """
sources:
  trainer:
    type: file
    paths: [/var/log/trainer/*.log]
    format:
      regex: '^(?P<time>[0-9-]+ [0-9:,]+) (?P<level>[A-Z]+) (?P<message>.*)$'
      time: {field: time, layout: python}
    multiline: {start: '^[0-9]{4}-[0-9]{2}-[0-9]{2} '}   # a line that begins with a date starts an entry
"""

_VERL = """
rotation: {max_size: 512MiB, backups: 5}     # for Ray ray/ray.env, for the engine worker logrotate/verl

verl:                       # rendered into verl/: worker.properties, engine_worker.conf, jvm.options, verl.env
  engine_worker: {level: info, heartbeat: false, compression_level: 3, metrics: {port: 9091}}
  upstream: {level: info, metrics_root: /var/log/verl/metrics}

sources:
  ray: {type: ray}          # the open-source package writes its lines into Ray's worker files
  engine: {type: verl, paths: [/var/log/verl/*.log]}
  metrics: {type: verl, dialect: upstream, paths: [/var/log/verl/metrics/*/*.jsonl]}

parsing:
  rules:                    # of a session's network events all or none; those at WARN and above stay
    - name: sample-net
      when: {source: engine, event: NET, level: {below: warn}}
      sample: {rate: 0.1, by: session_id}
"""

_STARTERS = {
    "ray": _HEAD.format(name="ray") + _RAY + _SINK,
    "verl": _HEAD.format(name="verl") + _VERL + _SINK,
    "file": _HEAD.format(name="files") + _FILE + _SINK,
}


def starter(kind: str) -> str:
    """A commented policy for `ray`, `verl` or `file`."""
    return _STARTERS[kind]
