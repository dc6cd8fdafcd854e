"""Configurations that people write by hand, to be run beside what shipgen renders.

``bare`` tails Ray's files to Loki and does nothing else. ``by_hand`` does by hand the work of a rendered pipeline:
groups, times, levels, labels, metadata. ``typical`` is what a team starts with from the shipper's own documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
MAIN = {"vector": "vector.yaml", "fluentbit": "fluent-bit.yaml", "fluentd": "fluent.conf", "promtail": "promtail.yaml"}


def sources(kind: str, target: str) -> list[Path]:
    """The files of a configuration, the main one first; none where there is none of this kind."""
    folder = HERE / kind / target if kind == "by_hand" else HERE / kind
    main = folder / MAIN.get(target, "none")
    if not main.exists():
        return []
    return [main, *(f for f in sorted(folder.iterdir()) if kind == "by_hand" and f != main)]


def written(kind: str, target: str, places: Mapping[str, str]) -> dict[str, bytes]:
    """The files of a configuration by their names, with each ``@NAME@`` of ``places`` put in, the main one first."""
    found = {}
    for file in sources(kind, target):
        text = file.read_text(encoding="utf-8")
        for name, value in places.items():
            text = text.replace(f"@{name}@", value)
        found[file.name] = text.encode()
    return found


def argv(target: str, config: str) -> list[str]:
    """Command that starts a shipper with one of these configurations."""
    folder = str(Path(config).parent)
    return {
        "vector": ["vector", "--quiet", "--config", config],
        "fluentbit": ["fluent-bit", "--config", config],
        "fluentd": ["fluentd", "--no-supervisor", "-q", "-c", config, "-p", folder],
        "promtail": ["promtail", f"-config.file={config}"],
    }[target]
