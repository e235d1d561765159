"""Binary COPY, the fastest way in: rows one by one as Python values, or whole columns encoded by numpy.

The format is PostgreSQL's own (manual, COPY, "Binary Format"): after a header every row is the count of its fields and
for each field its length in bytes (-1: null) and its bytes, big-endian.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection
from psycopg import sql

from perfdb.stats.ranks import Floats

_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_END = struct.pack("!h", -1)
_NULL = struct.pack("!i", -1)
_WIRE = {"int2": ">i2", "int4": ">i4", "int8": ">i8", "float8": ">f8", "bool": ">u1", "timestamptz": ">i8"}
_LONG = 200
_FLOAT8 = 701  # the type's number in pg_type
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

Cell = bytes | None


@dataclass(frozen=True, slots=True)
class Fixed:
    """A column of one width. `null` marks the rows that hold no value; timestamps are microseconds since 2000."""

    type: str
    values: npt.ArrayLike
    null: npt.NDArray[np.bool_] | None = None

    def encoded(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_] | None]:
        """(rows, 4 + width) bytes: length and value."""
        values = np.asarray(self.values).astype(_WIRE[self.type])
        width = values.dtype.itemsize
        out = np.empty((len(values), 4 + width), dtype=np.uint8)
        lengths = np.full(len(values), width, dtype=">i4")
        if self.null is not None:
            lengths[self.null] = -1
        out[:, :4] = lengths.view(np.uint8).reshape(-1, 4)
        out[:, 4:] = values.view(np.uint8).reshape(-1, width)
        return out, self.null


@dataclass(frozen=True, slots=True)
class Cells:
    """A column of any width: each row's value in the type's binary form, None for null."""

    values: Sequence[Cell]


Column = Fixed | Cells


def copy_rows(table: str, columns: dict[str, str], rows: Iterable[Sequence[Any]]) -> None:
    """Append `rows` to `table`. `columns` maps each column's name to its PostgreSQL type, in the rows' order.

    Raises django.db.IntegrityError, and writes nothing, where a constraint does not hold.
    """
    with (
        connection.cursor() as cursor,
        connection.wrap_database_errors,
        cursor.copy(_into(table, columns)) as copy,
    ):
        copy.set_types(list(columns.values()))
        for row in rows:
            copy.write_row(row)


def copy_columns(table: str, columns: Mapping[str, Column]) -> None:
    """Append rows given column by column, all of one length: fixed columns first, then the cells.

    Raises django.db.IntegrityError, and writes nothing, where a constraint does not hold.
    """
    data = encode_columns(list(columns.values()))
    if data:
        write_encoded(table, columns, data)


def write_encoded(table: str, columns: Iterable[str], data: bytes) -> None:
    """Append rows that `encode_columns` made."""
    with (
        connection.cursor() as cursor,
        connection.wrap_database_errors,
        cursor.copy(_into(table, columns)) as copy,
    ):
        copy.write(_HEADER)
        copy.write(data)
        copy.write(_END)


def encode_columns(columns: Sequence[Column]) -> bytes:
    """Rows in binary form. Raises ValueError where a fixed column follows one of cells."""
    fixed = [column for column in columns if isinstance(column, Fixed)]
    cells = [column for column in columns if isinstance(column, Cells)]
    if columns != [*fixed, *cells]:
        raise ValueError("fixed columns come before those of cells")
    if fixed and np.size(fixed[0].values) == 0:
        return b""  # no row at all: runs that failed without any value
    heads = _fixed_rows(fixed, fields=len(columns))
    if not cells:
        return b"".join(heads)
    tails: dict[tuple[Cell, ...], bytes] = {}
    out = []
    for head, row in zip(heads, zip(*(column.values for column in cells), strict=True), strict=True):
        out.append(head)
        if sum(map(len, filter(None, row))) > _LONG:  # samples: no two rows are alike
            out.append(_tail(row))
        elif row in tails:
            out.append(tails[row])
        else:
            out.append(tails.setdefault(row, _tail(row)))
    return b"".join(out)


def _tail(row: Sequence[Cell]) -> bytes:
    return b"".join(_NULL if cell is None else struct.pack("!i", len(cell)) + cell for cell in row)


def _fixed_rows(columns: Sequence[Fixed], *, fields: int) -> list[bytes]:
    """The fixed part of each row. A null's bytes are cut out, so that rows may differ in length."""
    parts = [column.encoded() for column in columns]
    count = len(parts[0][0]) if parts else 0
    first = np.frombuffer(struct.pack("!h", fields), dtype=np.uint8)
    matrix = np.concatenate([np.broadcast_to(first, (count, 2)), *(part for part, _ in parts)], axis=1)
    width = matrix.shape[1]
    raw = matrix.tobytes()
    if all(null is None for _, null in parts):
        return [raw[start : start + width] for start in range(0, count * width, width)]
    keep = np.ones(matrix.shape, dtype=np.bool_)
    at = 2
    for part, null in parts:
        if null is not None:
            keep[:, at + 4 : at + part.shape[1]] = ~null[:, None]
        at += part.shape[1]
    raw = matrix[keep].tobytes()
    ends = np.cumsum(keep.sum(axis=1)).tolist()
    return [raw[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def float_arrays(rows: Sequence[Floats | None]) -> list[Cell]:
    """`float8[]` of each row; None stays null. Rows of one length are encoded together."""
    out: list[Cell] = list(repeat(None, len(rows)))
    by_length: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        if row is not None:
            by_length.setdefault(len(row), []).append(index)
    for length, where in by_length.items():
        if not length:
            for index in where:
                out[index] = struct.pack("!iii", 0, 0, _FLOAT8)
            continue
        head = struct.pack("!iiiii", 1, 0, _FLOAT8, length, 1)
        elements = np.empty((len(where), length), dtype=[("size", ">i4"), ("value", ">f8")])
        elements["size"] = 8
        elements["value"] = np.stack([np.asarray(rows[index]) for index in where])
        raw, width = elements.tobytes(), 12 * length
        for number, index in enumerate(where):
            out[index] = head + raw[number * width : (number + 1) * width]
    return out


def texts(values: Iterable[str]) -> list[Cell]:
    """Text in UTF-8; NUL, which PostgreSQL's text cannot hold, becomes the replacement character."""
    return [value.replace("\x00", "\ufffd").encode("utf-8", "replace") if value else b"" for value in values]


def timestamps(values: Iterable[datetime]) -> npt.NDArray[np.int64]:
    """Microseconds since 2000, as timestamptz is stored."""
    seen: dict[datetime, int] = {}
    out = []
    for value in values:
        if value not in seen:
            gap = value - _EPOCH
            seen[value] = (gap.days * 86_400 + gap.seconds) * 1_000_000 + gap.microseconds
        out.append(seen[value])
    return np.array(out, dtype=np.int64)


def optional_ids(ids: Sequence[int | None]) -> Fixed:
    return Fixed("int8", [id_ or 0 for id_ in ids], np.array([id_ is None for id_ in ids]))


def floats(values: Sequence[float | None] | Floats) -> Fixed:
    """None and what is not finite is null."""
    found = np.array(values, dtype=np.float64)
    return Fixed("float8", np.nan_to_num(found), ~np.isfinite(found))


def jsonb(value: Any) -> Cell:
    """jsonb on the wire: its version, then the text."""
    return None if value is None else b"\x01" + json.dumps(value, ensure_ascii=False).encode()


def _into(table: str, columns: Iterable[str]) -> sql.Composed:
    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )


def allocate_ids(table: str, count: int) -> list[int]:
    """`count` fresh ids of the table's identity column."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)", [table, count]
        )
        return [row[0] for row in cursor.fetchall()]
