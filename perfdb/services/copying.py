"""Binary COPY: the fastest way in. Columns are given as Python values; psycopg encodes by the declared types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection
from psycopg import sql


def copy_rows(table: str, columns: dict[str, str], rows: Iterable[Sequence[Any]]) -> None:
    """Append `rows` to `table`. `columns` maps each column's name to its PostgreSQL type, in the rows' order.

    Raises django.db.IntegrityError, and writes nothing, where a constraint does not hold.
    """
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(statement) as copy:
        copy.set_types(list(columns.values()))
        for row in rows:
            copy.write_row(row)


def allocate_ids(table: str, count: int) -> list[int]:
    """`count` fresh ids of the table's identity column."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)", [table, count]
        )
        return [row[0] for row in cursor.fetchall()]
