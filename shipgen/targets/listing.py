"""What `shipgen targets` prints."""

from __future__ import annotations

from shipgen.policy.model import leaves
from shipgen.targets import base, capabilities


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
        seen: set[tuple[str, str]] = set()
        for leaf, row in capabilities.not_exact(name, base.release(target.versions[-1]), leaves()):
            key = (row.leaf, row.text)
            if key not in seen:
                seen.add(key)
                what = row.leaf if "**" in row.leaf or "*" in row.leaf else ".".join(leaf)
                hint = f"; {row.way_out}" if row.way_out else ""
                lines.append(f"  {row.status.value:13} {what}: {row.text}{hint}")
        lines.append("")
    return "\n".join(lines)
