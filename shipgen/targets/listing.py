"""What `shipgen targets` prints."""

from __future__ import annotations

from shipgen.policy.model import leaves
from shipgen.targets import base, capabilities
from shipgen.targets.capabilities import Row


def _deviations(name: str) -> list[Row]:
    return capabilities.deviations(name, base.release(base.get(name).versions[-1]), leaves())


def listing() -> str:
    """Targets, known versions, and the leaves that each does not do exactly."""
    lines: list[str] = []
    for name in base.NAMES:
        if name not in base.implemented():
            lines += [f"{name}: not rendered yet", ""]
            continue
        target = base.get(name)
        lines.append(f"{name}: versions {target.versions[0]} to {target.versions[-1]}; config {target.main_config}; "
                     f"image {target.image(target.versions[-1])}")
        for row in _deviations(name):
            hint = f"; {row.way_out}" if row.way_out else ""
            lines.append(f"  {row.status.value:13} {capabilities.in_words(row)}: {row.text}{hint}")
        lines.append("")
    return "\n".join(lines)


def as_json() -> str:
    """The same as JSON: an object with a key for each target of the policy language."""
    import json

    content: dict[str, dict[str, object]] = {}
    for name in base.NAMES:
        if name not in base.implemented():
            content[name] = {"rendered": False}
            continue
        target = base.get(name)
        content[name] = {
            "rendered": True, "versions": list(target.versions), "config": target.main_config,
            "image": target.image(target.versions[-1]),
            "not_exact": [
                {"leaf": row.leaf, "values": sorted(row.values), "status": row.status.value, "text": row.text,
                 "way_out": row.way_out}
                for row in _deviations(name)
            ],
        }
    return json.dumps(content, indent=2) + "\n"
