"""torchbench userbenchmarks and PyTorch HUD records."""

from __future__ import annotations

import json

from perfdb.formats import read
from tests.formats.files import benchmark, handed, identities, metric, own, samples, shared


def test_words_are_states_and_never_numbers() -> None:
    reading = handed("torchbench/metrics-20240307222831.excerpt.json")
    assert len(identities(reading)) == 4
    assert benchmark(reading, "group_bench/BERT_pytorch").status == "error"
    assert benchmark(reading, "group_bench/Background_Matting").status == "skipped"
    alexnet = benchmark(reading, "group_bench/alexnet")
    assert alexnet.params["extra_args"].endswith("--inductor-compile-mode max-autotune")
    latency = metric(alexnet, "latencies")
    assert (latency.value, latency.unit, latency.lower_is_better) == (2.904752, "ms", True)
    assert reading.commit is not None
    assert reading.commit.id.startswith("2ed1b174")


def test_a_number_that_turns_into_err_is_broken_under_the_same_identity() -> None:
    path = shared("torchbench/metrics-20240307222831.excerpt.json")
    before = read(path)
    after = read(path.read_text().replace("2.904752", '"err"').encode())
    assert identities(before) == identities(after)
    broken = benchmark(after, "group_bench/alexnet")
    assert (broken.status, broken.reason) == ("error", "latencies: err")
    assert [each.name for each in broken.metrics] == ["gpu_peak_mem"]


def test_free_keys_and_out_of_memory() -> None:
    reading = own("torchbench_free.json")
    assert metric(benchmark(reading, "speedup_bench/BERT-latency-ms"), "value").lower_is_better is None
    resnet = benchmark(reading, "speedup_bench/resnet")
    assert (resnet.status, resnet.params["extra_args"]) == ("oom", "--a b=c")
    assert metric(resnet, "throughputs").lower_is_better is False


def test_large_integers_stay_exact() -> None:
    (only,) = handed("pytorch-hud-v3/add_loop_eager.json").benchmarks
    (count,) = only.metrics
    assert (count.value, count.lower_is_better) == (3086359081, True)
    assert isinstance(count.value, int)
    assert json.loads(json.dumps(only.to_json()))["metrics"][0]["launches"] == [[3086359081]]


def test_one_record_or_array_a_line() -> None:
    reading = handed("pytorch-hud-v3/json-each-row.json")
    assert len(identities(reading)) == 3
    assert reading.rejected == ()


def test_records_without_a_metric_are_rejected() -> None:
    reading = handed("pytorch-hud-v3/mock.json")
    assert reading.format == "pytorch-hud-v3"
    assert reading.benchmarks == ()
    assert [each.at for each in reading.rejected] == ["[0]", "[1]", "[2]", "[3]"]
    assert all("without benchmark and metric" in each.reason for each in reading.rejected)


def test_keys_of_a_later_schema_are_no_obstacle() -> None:
    record = json.loads(shared("pytorch-hud-v3/add_loop_eager.json").read_text())[0] | {"new_key": 1}
    assert read(json.dumps([record]).encode()).format == "pytorch-hud-v3"


def test_a_full_record() -> None:
    reading = own("pytorch-hud_full.json")
    llama = benchmark(reading, "gpt-fast/llama")
    assert llama.params == {
        "mode": "inference",
        "dtype": "bfloat16",
        "model_type": "OSS model",
        "backend": "compile",
        "device": "cuda",
        "arch": "H100",
    }
    rate = metric(llama, "token_per_sec")
    assert (samples(rate), rate.unit, rate.lower_is_better) == ([100.0, 101.5], "tokens/s", False)
    assert metric(llama, "strange_score").lower_is_better is None
    assert reading.commit is not None
    assert (reading.commit.id, reading.commit.branch) == ("0123abcd", "main")
    assert reading.environment.klass == {"runner": "linux.aws.h100", "gpu": "H100", "cpu": "AMD"}
    assert "without values" in reading.rejected[0].reason
