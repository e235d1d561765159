"""What can be wrong with a file (fatal) or with one item of it (the rest goes on)."""

from __future__ import annotations


class FormatError(ValueError):
    """A file that cannot be read. `format` is the one tried, `at` the position, `reason` a plain sentence."""

    def __init__(self, format: str, at: str, reason: str) -> None:
        self.format = format
        self.at = at
        self.reason = reason
        super().__init__(f"{format}: {at}: {reason}" if at else f"{format}: {reason}")


class ItemError(ValueError):
    """One benchmark, metric or line that cannot be used. `at` is its position or empty for the current item's."""

    def __init__(self, reason: str, at: str = "") -> None:
        self.reason = reason
        self.at = at
        super().__init__(f"{at}: {reason}" if at else reason)
