"""Traces: reading, changing, describing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runners.replay.readers import read
from runners.replay.summary import TOKEN_EDGES, summarise
from runners.replay.trace import Trace, TraceError, TraceRequest
from runners.replay.transforms import apply, parse

TRACES = Path(__file__).parents[2].parent / "shared" / "data" / "traces"


def write(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def plain(*rows: tuple[float, int, int]) -> str:
    return "".join(
        json.dumps({"at_s": at, "input_tokens": tokens_in, "output_tokens": tokens_out}) + "\n"
        for at, tokens_in, tokens_out in rows
    )


def trace(*times: float) -> Trace:
    return Trace(tuple(TraceRequest(at, 10, 5) for at in times), "plain", "")


def changed(before: Trace, **table: Any) -> Trace:
    return apply(before, parse(table))


def shared(name: str) -> Trace:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{name}: the public traces are not beside this checkout")
    return read(path)


def test_plain_rows_are_sorted_and_start_at_zero(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        plain((5.0, 7, 2), (4.0, 3, 1)) + '\n{"at_s": 6, "input_tokens": 1,'
        ' "output_tokens": 1, "class": "chat"}\n',
    )
    found = read(path)
    assert [request.at_s for request in found.requests] == [0.0, 1.0, 2.0]
    assert [request.input_tokens for request in found.requests] == [3, 7, 1]
    assert found.requests[2].klass == "chat"
    assert found.format == "plain"


def test_azure_keeps_the_seventh_digit_of_a_second(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:46.6805907,396,109\n"
    )
    found = read(write(tmp_path, text))
    assert found.requests[1].at_s == pytest.approx(7e-7, abs=2e-7)
    assert found.requests[1].output_tokens == 109


def test_burstgpt_takes_the_model_as_class(tmp_path: Path) -> None:
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        '5,,1.2,ChatGPT,472,18,490,"Conversation, log"\n45,,0.3,GPT-4,1087,0,1087,API log\n'
    )
    found = read(write(tmp_path, text))
    assert found.format == "burstgpt"
    assert [(r.at_s, r.klass, r.output_tokens) for r in found.requests] == [
        (0.0, "ChatGPT", 18),
        (40.0, "GPT-4", 0),
    ]


def test_bailian_and_mooncake_differ_in_time_unit_and_block(tmp_path: Path) -> None:
    row: dict[str, Any] = {"timestamp": 0, "input_length": 20, "output_length": 4, "hash_ids": [1, 2]}
    later = row | {"timestamp": 3000}
    mooncake = read(write(tmp_path, json.dumps(row) + "\n" + json.dumps(later), "m"))
    chat = {"chat_id": 1, "parent_chat_id": -1, "type": "text", "turn": 1}
    bailian = read(write(tmp_path, json.dumps(row | chat) + "\n" + json.dumps(later | chat), "b"))
    assert (mooncake.format, mooncake.block_tokens, mooncake.span_s) == ("mooncake", 512, 3.0)
    assert (bailian.format, bailian.block_tokens, bailian.span_s) == ("bailian", 16, 3000.0)
    assert bailian.requests[0].klass == "text"
    assert mooncake.requests[0].blocks == (1, 2)


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,3,4\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request"),
        ("a,b\n1,2\n", "belong to no known format"),
        (AZURE + "yesterday,3,4\n", r"bad:3: TIMESTAMP: expected a date and time, got 'yesterday'"),
        (AZURE + "2023-11-16 18:15:47,3\n", r"bad:3: 2 fields under a header of 3"),
        (AZURE + "2023-11-16 18:15:47,3,-4\n", r"bad:3: GeneratedTokens: expected a whole number"),
        (AZURE + "2023-11-16 18:15:47,3.5,4\n", r"bad:3: ContextTokens: expected a whole number"),
        (AZURE + '2023-11-16 18:15:47,"3,4\n', r"bad:3: unexpected end of data"),
        (plain((0, 1, 1)) + "{broken\n", r"bad:2: no JSON"),
        (plain((0, 1, 1)) + "[1]\n", r"bad:2: expected an object"),
        (plain((0, 1, 1)) + '{"at_s": NaN, "input_tokens": 1, "output_tokens": 1}', r"bad:2: at_s: .*nan"),
        (plain((0, 1, 1)) + '{"at_s": 1, "input_tokens": 1}', r"bad:2: output_tokens is missing"),
        (plain((0, 1, 1)) + '{"at_s": 1, "input_tokens": true, "output_tokens": 1}', r"bad:2: input_tokens"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}', r"bad:1: hash_ids"),
    ],
)
def test_a_bad_file_is_named_with_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(write(tmp_path, text, "bad"))


def test_a_file_that_is_absent_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="gone: No such file"):
        read(tmp_path / "gone")
    (tmp_path / "binary").write_bytes(b"at_s\n\xff\xfe")
    with pytest.raises(TraceError, match="binary:2: no UTF-8"):
        read(tmp_path / "binary")


def test_rate_scales_times_and_keeps_the_shape_of_bursts() -> None:
    faster = changed(trace(0.0, 1.0, 4.0), requests_per_s=5.0)
    assert [request.at_s for request in faster.requests] == pytest.approx([0.0, 0.1, 0.4])


def test_transforms_apply_in_their_documented_order() -> None:
    """The window is in the trace's own time, the first two are of what is left, lengths are cut when scaled."""
    after = changed(
        trace(0.0, 1.0, 2.0, 3.0, 4.0),
        start_s=1.0,
        duration_s=3.0,
        requests=2,
        time_scale=0.5,
        output_scale=2.0,
        max_input_tokens=4,
        max_output_tokens=9,
    )
    assert after.requests == (TraceRequest(0.0, 4, 9), TraceRequest(0.5, 4, 9))


def test_scaled_prompts_no_longer_share_blocks() -> None:
    shared_blocks = Trace((TraceRequest(0.0, 512, 1, "", (1,)),), "mooncake", "", 512)
    assert changed(shared_blocks, input_scale=0.25).requests == (TraceRequest(0.0, 128, 1),)


def test_jitter_undoes_a_grid_and_repeats_by_its_seed() -> None:
    gridded = trace(*([0.0] * 50), *([3.0] * 50))
    once, again, other = (changed(gridded, jitter_s=3.0, jitter_seed=seed) for seed in (1, 1, 2))
    assert once.content_hash() == again.content_hash() != other.content_hash()
    assert len({request.at_s for request in once.requests}) == 100
    assert 3.0 < once.span_s < 6.0
    assert [r.at_s for r in once.requests] == sorted(r.at_s for r in once.requests)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"speed": 2}, "transform: unknown key 'speed'"),
        ({"requests": 0}, "transform.requests: 0 leaves nothing"),
        ({"requests": 2.5}, "transform.requests: expected a whole number"),
        ({"requests": "many"}, "transform.requests: expected a whole number"),
        ({"time_scale": -1}, "transform.time_scale: expected a number of at least 0"),
        ({"requests_per_s": float("nan")}, "transform.requests_per_s: expected a number"),
        ({"drop_empty": 1}, "transform.drop_empty: expected true or false"),
        ({"time_scale": 1.0, "requests_per_s": 1.0}, "exclude each other"),
        ({"start_s": 90}, "transform: none of 2 requests is left"),
    ],
)
def test_a_bad_transform_is_named(table: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        changed(trace(0.0, 1.0), **table)


def test_arrivals_at_one_instant_have_no_rate_to_scale() -> None:
    with pytest.raises(TraceError, match="all requests arrive at once"):
        changed(trace(1.0, 1.0), requests_per_s=5.0)


def test_requests_that_failed_when_recorded_are_dropped_only_on_demand() -> None:
    recorded = Trace((TraceRequest(0.0, 5, 0), TraceRequest(1.0, 5, 3)), "burstgpt", "")
    assert changed(recorded).requests == recorded.requests
    assert changed(recorded, drop_empty=True).requests == (TraceRequest(0.0, 5, 3),)


def test_the_hash_is_of_the_content_and_not_of_the_file(tmp_path: Path) -> None:
    rows = plain((0, 1, 1), (1, 2, 2))
    one = read(write(tmp_path, rows, "one"))
    spaced = read(write(tmp_path, rows.replace(", ", ",  "), "two"))
    assert one.content_hash() == spaced.content_hash()
    assert one.source_sha256 != spaced.source_sha256
    assert read(write(tmp_path, plain((0, 1, 1), (1, 2, 3)), "three")).content_hash() != one.content_hash()


def test_summary_of_a_small_trace() -> None:
    requests = (
        TraceRequest(0.0, 1024, 1, "a", (1, 2)),
        TraceRequest(1.0, 1536, 3, "b", (1, 2, 3)),
        TraceRequest(3.0, 1024, 5, "a", (9, 2)),
    )
    found = summarise(Trace(requests, "mooncake", "", 512), name="x").to_dict()
    assert found["rate"] == pytest.approx(2 / 3)
    assert found["classes"] == {"a": 2, "b": 1}
    assert found["interarrival_s"]["mean"] == 1.5
    assert found["output_tokens"]["quantiles"][50] == 3.0
    # Of seven blocks two were seen as part of the same prefix; block 2 after 9 was not.
    assert found["prefix"]["hit_rate"] == pytest.approx(2 / 7)
    assert found["prefix"]["distinct_blocks"] == 4
    counts = found["input_tokens"]["counts"]
    assert counts[TOKEN_EDGES.index(1024.0)] == 2
    assert sum(counts) == 3
    json.dumps(found, allow_nan=False)


def test_summary_of_one_request_has_no_rate() -> None:
    found = summarise(trace(0.0), name="x")
    assert found.rate is None
    assert found.interarrival_s.n == 0
    assert found.prefix is None


@pytest.mark.parametrize(
    ("name", "requests", "cv"), [("azure_conv.csv", 19366, 1.09), ("azure_code.csv", 8819, 13.15)]
)
def test_public_azure_traces_have_their_published_burstiness(name: str, requests: int, cv: float) -> None:
    found = summarise(shared(name), name=name)
    assert found.requests == requests
    assert found.interarrival_s.cv == pytest.approx(cv, abs=0.005)


def test_public_mooncake_trace_shares_prefixes() -> None:
    found = summarise(shared("mooncake_synthetic.jsonl"), name="mooncake")
    assert found.requests == 3993
    assert found.prefix is not None
    assert 0.3 < found.prefix.hit_rate < 0.9
