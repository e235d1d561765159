"""The formats in the order they are tried: the sure marks first, the loose shapes last."""

from __future__ import annotations

from perfdb.formats import (
    aiperf,
    aiperf_records,
    asv,
    bencher,
    benchmarkdotnet,
    cargo_bench,
    catch2,
    catch2_text,
    codespeed,
    criterion,
    github_action,
    go_bench,
    google_benchmark,
    hyperfine,
    jmh,
    k6,
    lnt,
    locust,
    mlperf,
    nvbench,
    own,
    pyperf,
    pytest_benchmark,
    pytorch_hud,
    sglang,
    torchbench,
    vllm,
    wrk,
)
from perfdb.formats.format import Format

__all__ = ["ALIASES", "FORMATS", "Format"]

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        own.FORMAT,
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
        aiperf.FORMAT,
        aiperf.GENAI_PERF_FORMAT,
        aiperf_records.FORMAT,
        torchbench.FORMAT,
        github_action.DATA_JS_FORMAT,
        github_action.CUSTOM_FORMAT,
        codespeed.FORMAT,
        pytorch_hud.FORMAT,
        lnt.FORMAT,
        k6.FORMAT,
        locust.FORMAT,
        wrk.FORMAT,
        bencher.FORMAT,
        nvbench.CSV_FORMAT,
        mlperf.SUMMARY_FORMAT,
        mlperf.DETAIL_FORMAT,
        catch2.FORMAT,
        catch2_text.FORMAT,
        cargo_bench.FORMAT,
        go_bench.FORMAT,
    )
}

# Short names for formats of several shapes; the content says which shape it is.
ALIASES: dict[str, tuple[str, ...]] = {
    "nvbench": ("nvbench-json", "nvbench-csv"),
    "mlperf": ("mlperf-summary", "mlperf-detail"),
    "bmf": ("bencher-bmf",),
    "aiperf": ("aiperf", "aiperf-records"),
    "catch2": ("catch2", "catch2-text"),
    "go": ("go-bench",),
    "pytest": ("pytest-benchmark",),
}
