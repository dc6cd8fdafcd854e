"""A shipper for tests: reads a Ray tree with the reference and pushes what it finds, with a fault if told to.

Its configuration is JSON: where the tree is, where Loki is, and the fault.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from shipgen.harness import reference


def main(config: dict[str, Any]) -> None:
    if config["fault"] == "dies at start":
        sys.exit("fake: no such option")
    print("fake has started", flush=True)
    options = reference.Options(source="ray", cluster="c", node=config["node"])
    entries: list[tuple[dict[str, str], int, str, dict[str, str]]] = []
    for record in reference.read_tree(Path(config["tree"]), options):
        labels = {"job": "t", **{k: record[k] for k in ("cluster", "component", "level", "node") if k in record}}
        own = {k: v for k, v in record.items() if k not in (*labels, "time", "raw", "message", "extra")}
        metadata = {k: "true" if v is True else str(v) for k, v in own.items()}
        entries.append((labels, record["time"] or time.time_ns(), record["raw"], metadata))
    entries.sort(key=lambda entry: entry[1])
    sick(entries, config["fault"])
    streams = [{"stream": labels, "values": [[str(at), raw, metadata]]} for labels, at, raw, metadata in entries]
    body = json.dumps({"streams": streams}).encode()
    push = urllib.request.Request(f"{config['loki']}/loki/api/v1/push", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(push, timeout=10):
        pass
    if config["fault"] == "dies":
        sys.exit("fake: out of memory")
    time.sleep(600)


def sick(entries: list[Any], fault: str) -> None:
    """Do to the entries what a bad configuration would."""
    labels, at, raw, metadata = entries[-1]
    if fault == "loses":
        del entries[-1]
    elif fault == "repeats":
        entries.append(entries[-1])
    elif fault == "wrong":
        entries[-1] = ({**labels, "level": "fatal"}, at, raw, metadata)
    elif fault == "old":
        entries.append(({"job": "t"}, at, "new", metadata))
        entries.append(({"job": "t"}, at - 7200 * 10**9, "old", metadata))
    elif fault == "epoch":
        entries[0] = ({**entries[0][0], "odd": "x"}, 0, *entries[0][2:])


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
