"""What a reader module offers: its one `FORMAT`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfdb.formats.reading import Reading
from perfdb.formats.source import Source


@dataclass(frozen=True)
class Format:
    """A foreign format.

    sniff: whether the content is of this format; it must not raise but for text that is no valid JSON at all.
    read: the whole file as a Reading; raises FormatError or ItemError when that cannot be done.
    markers: words that together name the format even where the file is broken, for the error message only.
    """

    name: str
    title: str
    sniff: Callable[[Source], bool]
    read: Callable[[Source], Reading]
    markers: tuple[str, ...] = ()

    def marked(self, head: str) -> bool:
        return bool(self.markers) and all(marker in head for marker in self.markers)
