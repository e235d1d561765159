"""SGLang `bench_serving`: one JSON object a line, each line a run. Lines of equal parameters are launches of one
benchmark.

The data set is the workload and so part of the name; the parameters are the configuration it was sent at.
`server_info` is environment, by a list of named keys only (it holds ports, seeds and paths), and never identity.
"""

from __future__ import annotations

from typing import Any

from perfdb.formats.draft import Draft
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import Params, Reading
from perfdb.formats.serving import failed_note, run_metrics
from perfdb.formats.source import Source
from perfdb.formats.values import shown

NAME = "sglang"
_PARAMS = (
    "backend", "request_rate", "max_concurrency", "sharegpt_output_len", "random_input_len",
    "random_output_len", "random_range_ratio", "random_image_count", "random_image_resolution", "num_prompts",
)  # fmt: skip
_CLASS = (
    "model_path", "dtype", "quantization", "kv_cache_dtype", "device", "tp_size", "pp_size", "dp_size", "ep_size",
    "nnodes", "speculative_algorithm", "disaggregation_mode",
)  # fmt: skip
_BOUNDARY = (
    "version", "attention_backend", "sampling_backend", "chunked_prefill_size", "max_prefill_tokens",
    "mem_fraction_static", "schedule_policy", "disable_cuda_graph", "disable_radix_cache", "enable_torch_compile",
    "context_length",
)  # fmt: skip


def _sniff(source: Source) -> bool:
    first = source.first_object
    return {"backend", "completed", "output_throughput"} <= first.keys() and "model_id" not in first


def _read(source: Source) -> Reading:
    draft = Draft(NAME)
    for record in source.records():
        if isinstance(record, FormatError):
            draft.reject(record.at, record.reason)
            continue
        with draft.item(record.at):
            if not isinstance(record.value, dict) or "completed" not in record.value:
                raise ItemError(f"expected a run with `completed`, got {shown(record.value)}")
            _run(draft, record.at, record.value)
    return draft.finish()


def _run(draft: Draft, at: str, run: dict[str, Any]) -> None:
    params: Params = {key: run[key] for key in _PARAMS if isinstance(run.get(key), (str, int, float))}
    params |= _environment(draft, run.get("server_info"))
    completed, failed = run["completed"], _failed(run)
    metrics = run_metrics(draft, at, run, failed)
    status, reason = ("error", "no request completed") if completed == 0 else ("ok", "")
    dataset = run.get("dataset_name")
    draft.add(
        f"bench_serving/{dataset}" if isinstance(dataset, str) and dataset else "bench_serving",
        metrics,
        params=params,
        status=status,
        reason=reason,
        notes=failed_note(completed, failed),
        info={key: run.get(key) for key in ("tag", "duration", "completed", "concurrency", "accept_length")},
        repeat="launches",
    )


def _failed(run: dict[str, Any]) -> int | None:
    """`--output-details` keeps an error text for each request; without it the file does not tell."""
    errors = run.get("errors")
    return sum(1 for error in errors if error) if isinstance(errors, list) else None


def _environment(draft: Draft, info: Any) -> Params:
    """Named keys only. Returns those of the class in which this line's server differs from the first line's."""
    if not isinstance(info, dict):
        return {}
    klass = {key: info[key] for key in _CLASS if isinstance(info.get(key), (str, int, float))}
    if not draft.klass:
        draft.klass |= klass
        draft.boundary |= {
            key: info[key] for key in _BOUNDARY if isinstance(info.get(key), (str, int, float))
        }
    return {key: value for key, value in klass.items() if draft.klass.get(key) != value}


FORMAT = Format(NAME, "SGLang bench_serving", _sniff, _read, ('"random_range_ratio"', '"completed"'))
