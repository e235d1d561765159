"""vLLM, SGLang, aiperf and genai-perf: failures stay visible, impossible latencies never improve anything."""

from __future__ import annotations

import json

import pytest

from perfdb.formats import read
from tests.formats.files import INPUTS, benchmark, handed, identities, metric, own, samples, shared


def test_a_run_with_a_failed_request_is_kept_and_marked() -> None:
    (run,) = handed("vllm/tsho_tpu_short_rate2_failed1.json").benchmarks
    ttft = metric(run, "median_ttft")
    assert ttft.value == pytest.approx(134.40, abs=5e-3)
    assert (ttft.unit, ttft.lower_is_better, ttft.successes_only) == ("ms", True, True)
    rate = metric(run, "failure_rate")
    assert (rate.value, rate.lower_is_better) == (0.001, True)
    assert run.status == "ok"
    assert run.notes[0].startswith("1 of 1000 requests failed")
    names = {each.name for each in run.metrics}
    assert "rtfx" not in names
    assert "request_goodput" not in names


def test_an_infinite_rate_is_a_parameter() -> None:
    (run,) = handed("vllm/tsho_gpu_long_rateinf.json").benchmarks
    assert float(run.params["request_rate"]) == float("inf")
    assert json.loads(json.dumps(run.to_json(), allow_nan=False))["params"]["request_rate"] == "inf"
    assert metric(run, "failure_rate").value == 0.0


def test_impossible_latencies_are_rejected() -> None:
    reading = own("vllm_detailed.json")
    (run,) = reading.benchmarks
    assert {each.name for each in run.metrics} >= {"mean_ttft", "p99_tpot"}
    assert not {"mean_tpot", "median_tpot"} & {each.name for each in run.metrics}
    assert [each.reason for each in reading.rejected] == [
        "0.0 ms is no possible duration",
        "-3.1 ms is no possible duration",
    ]
    # The failed request's 0.0 is no sample; versions without `failed` are counted by num_prompts.
    assert samples(metric(run, "median_ttft")) == pytest.approx([100.0, 200.0, 300.0])
    assert metric(run, "failure_rate").value == 0.25


def test_a_goodput_of_zero_is_the_worst_result_and_kept() -> None:
    text = shared("vllm/tsho_tpu_short_rate2_failed1.json").read_text()
    (run,) = read(text.replace('"request_goodput": null', '"request_goodput": 0.0').encode()).benchmarks
    goodput = metric(run, "request_goodput")
    assert (goodput.value, goodput.lower_is_better) == (0.0, False)


def test_a_run_in_which_everything_failed_has_only_its_failure_rate() -> None:
    document = json.loads((INPUTS / "vllm_detailed.json").read_text()) | {"completed": 0, "failed": 4}
    reading = read(json.dumps(document).encode())
    (run,) = reading.benchmarks
    assert run.status == "error"
    assert [(each.name, each.value) for each in run.metrics] == [("failure_rate", 1.0)]
    assert reading.rejected == ()


def test_runs_appended_to_one_file_are_launches() -> None:
    line = shared("vllm/tsho_tpu_short_rate2_failed1.json").read_text().strip()
    (run,) = read(f"{line}\n{line.replace('134.40', '140.40')}\n".encode()).benchmarks
    ttft = metric(run, "median_ttft")
    assert (len(ttft.launches), [round(value, 1) for value in ttft.launch_values]) == (2, [134.4, 140.4])
    assert [launch.value for launch in ttft.per_launch()] == list(ttft.launch_values)


def test_offline_benchmarks_of_vllm() -> None:
    latency, throughput = own("vllm_latency.json").benchmarks[0], own("vllm_throughput.json").benchmarks[0]
    assert metric(latency, "latency").launches == ((1.4, 1.6),)
    assert metric(throughput, "tokens_per_second").lower_is_better is False


def test_sglang_lines_of_one_configuration_are_runs() -> None:
    reading = handed("sglang/llama_3_3_70b_online_output.jsonl")
    # Rates 4 and 8 were run with two data sets each; unequal workloads are never launches of one series.
    assert sum(len(metric(each, "median_ttft").launches) for each in reading.benchmarks) == 7
    rates = [each.params["request_rate"] for each in reading.benchmarks]
    assert (
        len(set(rates)) == len({json.dumps(each.params, sort_keys=True) for each in reading.benchmarks}) == 5
    )
    assert sorted(rate for rate in rates if rates.count(rate) == 2) == [4.0, 4.0, 8.0, 8.0]


def test_server_info_is_environment_by_named_keys() -> None:
    path = shared("sglang/agg_n100_in128_out128_c32.jsonl")
    reading = read(path)
    assert len(reading.benchmarks) == 1
    assert reading.environment.klass["model_path"] == "Qwen/Qwen2.5-3B-Instruct"
    text = path.read_text()
    later = read(
        text.replace('"random_seed": 4815996', '"random_seed": 7')
        .replace('"port": 30000', '"port": 1')
        .encode()
    )
    assert later.environment == reading.environment
    assert identities(later) == identities(reading)
    assert not {"port", "random_seed", "host"} & {*reading.environment.klass, *reading.environment.boundary}


def test_sglang_repeats_failures_and_another_server() -> None:
    reading = own("sglang_details.jsonl")
    first = benchmark(reading, "bench_serving/sharegpt", model_path=None)
    assert metric(first, "median_ttft").launch_values == (50.0, 40.0)
    assert metric(first, "failure_rate").launch_values == (pytest.approx(1 / 3), 0.0)
    other = benchmark(reading, "bench_serving/sharegpt", model_path="m/b")
    assert (other.status, other.metrics) == ("error", ())
    assert reading.rejected[0].at.startswith("line 4")


def test_aiperf_metrics_have_units_and_directions() -> None:
    (run,) = handed("aiperf/akamas_c768.excerpt.json").benchmarks
    assert len([each for each in run.metrics if not each.name.endswith("_p99")]) == 15
    goodput, throughput = metric(run, "goodput"), metric(run, "request_throughput")
    assert (round(goodput.value or 0, 2), goodput.lower_is_better) == (0.64, False)
    assert (round(throughput.value or 0, 2), throughput.lower_is_better) == (16.99, False)
    # Requests of one token have no second: the counts differ, and each metric keeps its own.
    assert metric(run, "time_to_first_token").summary["count"] == 5097
    assert metric(run, "inter_token_latency").summary["count"] == 5093
    assert metric(run, "time_to_first_token_p99").statistic == "p99"
    assert metric(run, "benchmark_duration").lower_is_better is None
    assert run.params == {"phases.profiling.concurrency": 768}


def test_aiperf_records_are_samples() -> None:
    reading = own("aiperf-records.jsonl")
    (run,) = reading.benchmarks
    assert samples(metric(run, "request_latency")) == [100.5, 110.5]
    assert samples(metric(run, "inter_chunk_latency")) == [4.0, 5.0]
    # A first token after no time at all is impossible; the request's other values count.
    assert samples(metric(run, "time_to_first_token")) == [20.0]
    assert reading.rejected[0].at == "line 3 time_to_first_token"
    assert metric(run, "failure_rate").value == pytest.approx(1 / 3)
    assert not any("timestamp" in each.name for each in run.metrics)


def test_the_identity_of_aiperf_holds_no_run_id() -> None:
    text = shared("aiperf/akamas_c768.excerpt.json").read_text()
    changed = text.replace("c26be6d54a1946ac8d0241708c95f103", "ffff").replace("2026-09-30", "2027-01-01")
    assert identities(read(changed.encode())) == identities(read(text.encode()))


def test_genai_perf_counts_errors_and_rejects_the_impossible() -> None:
    reading = own("genai-perf_profile.json")
    (run,) = reading.benchmarks
    assert reading.format == "genai-perf"
    assert metric(run, "failure_rate").value == pytest.approx(0.1)
    assert "inter_token_latency" not in {each.name for each in run.metrics}
    assert metric(run, "inter_token_latency_p99").value == 12.0
    assert run.params["concurrency"] == 4
    assert "url" not in run.params


@pytest.mark.parametrize("name", ["vllm_detailed.json", "sglang_details.jsonl", "genai-perf_profile.json"])
def test_every_latency_is_marked_as_over_successes(name: str) -> None:
    for each in own(name).benchmarks:
        assert all(made.successes_only for made in each.metrics if made.unit == "ms")
    assert (INPUTS / name).exists()
