"""Lines into groups, as shippers do it: for `preview`, where no shipper runs. A test shows that real Vector agrees."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from shipgen.catalog import formats
from shipgen.catalog.ray import Grouping
from shipgen.pipeline.model import Source


class Regex(Protocol):
    """What can be searched for in a line."""

    def search(self, text: str, /) -> object: ...


def _until_start(lines: Iterable[str], start: Regex) -> Iterator[str]:
    """A group begins at each start; lines before the first one are groups of their own."""
    group: list[str] = []
    for line in lines:
        if start.search(line):
            if group:
                yield "\n".join(group)
            group = [line]
        elif group:
            group.append(line)
        else:
            yield line
    if group:
        yield "\n".join(group)


def _continued(lines: Iterable[str], continuation: re.Pattern[str]) -> Iterator[str]:
    """A line that matches belongs to the line before it."""
    group: list[str] = []
    for line in lines:
        if group and continuation.search(line):
            group.append(line)
            continue
        if group:
            yield "\n".join(group)
        group = [line]
    if group:
        yield "\n".join(group)


def ray_groups(lines: Iterable[str], grouping: Grouping) -> Iterator[str]:
    """Groups of a Ray file's lines (without their LF)."""
    if grouping is Grouping.HEADER:
        return _until_start(lines, re.compile(formats.HEADER))
    if grouping is Grouping.USER:
        return _continued(lines, re.compile(formats.CONTINUATION))
    return iter(lines)


def file_groups(lines: Iterable[str], source: Source) -> Iterator[str]:
    """Groups of the lines of a file that is not Ray's."""
    if source.continuation:
        return _continued(lines, re.compile(source.continuation))
    if source.multiline is None:
        return iter(lines)
    import re2  # what the policy's regexes mean; Python's own has other digits and blanks

    return _until_start(lines, re2.compile(source.multiline.start))
