"""A small PNG of a series for mails: mail programs show neither SVG nor scripts. Written with zlib alone."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Canvas = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]

WIDTH, HEIGHT, MARGIN = 560, 150, 8
PAPER, LINE, MARK, BAND = (255, 255, 255), (36, 86, 200), (179, 38, 30), (251, 233, 231)


def line_png(values: Sequence[float | None], *, mark: int | None = None) -> bytes:
    """A line through the values (a gap for None), the part from index `mark` on shaded. PNG bytes."""
    canvas = np.full((HEIGHT, WIDTH, 3), PAPER, dtype=np.uint8)
    known = [value for value in values if value is not None]
    if known:
        low, high = min(known), max(known)
        step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
        scale = (HEIGHT - 2 * MARGIN) / ((high - low) or 1.0)
        if mark is not None:
            at = round(MARGIN + (mark - 0.5) * step)
            canvas[:, max(0, at) :] = BAND
            canvas[:, max(0, at) : max(0, at) + 2] = MARK
        previous: tuple[float, float] | None = None
        for index, value in enumerate(values):
            if value is None:
                previous = None
                continue
            point = (MARGIN + index * step, HEIGHT - MARGIN - (value - low) * scale)
            _segment(canvas, previous or point, point)
            previous = point
    return _png(canvas)


def _segment(canvas: Canvas, start: tuple[float, float], end: tuple[float, float]) -> None:
    """A stroke of 2 pixels."""
    count = int(max(abs(end[0] - start[0]), abs(end[1] - start[1]))) + 2
    xs = np.linspace(start[0], end[0], count).astype(int)
    ys = np.linspace(start[1], end[1], count).astype(int)
    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
        canvas[np.clip(ys + dy, 0, HEIGHT - 1), np.clip(xs + dx, 0, WIDTH - 1)] = LINE


def _png(canvas: Canvas) -> bytes:
    """8-bit RGB, unfiltered rows (PNG specification, third edition, sections 5 and 11)."""
    height, width, _ = canvas.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), canvas.reshape(height, -1)], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body
