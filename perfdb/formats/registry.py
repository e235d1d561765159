"""The formats in the order they are tried: the sure marks first, the loose shapes last."""

from __future__ import annotations

from perfdb.formats import (
    asv,
    benchmarkdotnet,
    catch2,
    criterion,
    go_bench,
    google_benchmark,
    hyperfine,
    jmh,
    mlperf,
    nvbench,
    pyperf,
    pytest_benchmark,
    sglang,
    vllm,
)
from perfdb.formats.format import Format

__all__ = ["FORMATS", "Format"]

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        nvbench.JSON_FORMAT,
        pytest_benchmark.FORMAT,
        google_benchmark.FORMAT,
        hyperfine.FORMAT,
        pyperf.FORMAT,
        asv.FORMAT,
        jmh.FORMAT,
        criterion.FORMAT,
        benchmarkdotnet.FORMAT,
        vllm.FORMAT,
        sglang.FORMAT,
        nvbench.CSV_FORMAT,
        mlperf.SUMMARY_FORMAT,
        mlperf.DETAIL_FORMAT,
        catch2.FORMAT,
        go_bench.FORMAT,
    )
}
