"""The formats in the order they are tried: the sure marks first, the loose shapes last."""

from __future__ import annotations

from perfdb.formats import asv, go_bench, google_benchmark, hyperfine, pyperf, pytest_benchmark
from perfdb.formats.format import Format

__all__ = ["FORMATS", "Format"]

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        pytest_benchmark.FORMAT,
        google_benchmark.FORMAT,
        hyperfine.FORMAT,
        pyperf.FORMAT,
        asv.FORMAT,
        go_bench.FORMAT,
    )
}
