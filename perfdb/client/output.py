"""How the command line speaks: aligned text for people, colour only on a terminal, JSON and Markdown for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_COLOURS = {"regressed": "31", "improved": "32", "inconclusive": "33", "invalid": "33", "changed": "35"}
_SIGNS = {"regressed": "▲", "improved": "▼", "same": "=", "inconclusive": "?", "invalid": "⊘", "changed": "◆"}
MARKDOWN_LIMIT = 65_536


def coloured(text: str, outcome: str) -> str:
    """`text` in the outcome's colour on a terminal that wants it (NO_COLOR is honoured)."""
    code = _COLOURS.get(outcome)
    if code is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def sign(outcome: str) -> str:
    return _SIGNS.get(outcome, "·")


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded to their widest cell; the last is left as it is."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * (ratio - 1):+.2f} %"


def neutral(text: str) -> str:
    """Text from outside inside Markdown: mentions notify nobody, tables and tags stay whole."""
    quiet = (
        text.replace("@", "@\u200b")
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("`", "'")
    )
    return " ".join(quiet.split())


def cut(lines: Sequence[str], *, limit: int = MARKDOWN_LIMIT, link: str = "") -> str:
    """Whole lines up to the limit of a comment, then how many more there are."""
    out: list[str] = []
    size = 0
    for number, line in enumerate(lines):
        left = len(lines) - number
        tail = f"\n\nand {left} more lines{': ' + link if link else ''}"
        if size + len(line) + 1 + len(tail) > limit:
            return "\n".join(out) + tail
        out.append(line)
        size += len(line) + 1
    return "\n".join(out)


def complain(text: str) -> None:
    print(f"perfdb: {text}", file=sys.stderr)
