"""Tables and the roofline picture of one recorded run of `benchmarks.kernels measure`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .kernel_case import geometric_mean

Row = Mapping[str, Any]
OURS = "ours"
_COMPUTE = {"flash_attention", "flash_attention_backward", "fp8_gemm", "fp8_gemm_exact"}
_COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
           "#ff7f0e", "#393b79", "#637939", "#8c6d31", "#843c39", "#7b4173")  # fmt: skip
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _LEGEND = 860, 520, 70, 50, 220
_X_DECADES, _Y_DECADES = (-1, 4), (11, 15.3)


def write_report(results: Path, *, markdown: Path, svg: Path) -> None:
    recorded = json.loads(results.read_text())
    markdown.write_text(tables(recorded))
    svg.write_text(roofline(recorded))


def bandwidth_ceiling(recorded: Mapping[str, Any]) -> float:
    """Bytes/s: the measured copy, or what some kernel reached where that is more (then the copy was no ceiling)."""
    reached = (row["bytes"] / row["time_s"] for row in recorded["rows"])
    return float(max(recorded["ceilings"]["copy"], *reached))


def tables(recorded: Mapping[str, Any]) -> str:
    """One table of geometric means, and one of every shape, in Markdown."""
    copy = recorded["ceilings"]["copy"]
    summary = [
        "| operation | shapes | share of the measured copy | times torch's speed |",
        "| --- | --: | --: | --: |",
    ]
    detail = [
        "| operation | model | shape | us | TB/s | TFLOP/s | torch us | relative error |",
        "| --- | --- | --- | --: | --: | --: | --: | --: |",
    ]
    for op, pairs in by_operation(recorded["rows"]).items():
        shares = [ours["bytes"] / ours["time_s"] / copy for ours, _ in pairs]
        ratios = [peer["time_s"] / ours["time_s"] for ours, peer in pairs if peer]
        share = "compute-bound" if op in _COMPUTE else f"{geometric_mean(shares):.3f}"
        summary.append(f"| {op} | {len(pairs)} | {share} | {geometric_mean(ratios):.2f} |" if ratios
                       else f"| {op} | {len(pairs)} | {share} | no peer |")  # fmt: skip
        for ours, peer in pairs:
            rate, flops = ours["bytes"] / ours["time_s"] / 1e12, ours["flops"] / ours["time_s"] / 1e12
            torch_us = f"{peer['time_s'] * 1e6:.1f}" if peer else ""
            detail.append(
                f"| {op} | {ours['model']} | {ours['shape']} | {ours['time_s'] * 1e6:.1f} | {rate:.2f} "
                f"| {flops:.1f} | {torch_us} | {ours['error']:.1e} |"
            )
    return "\n".join([*summary, "", *detail, ""])


def by_operation(rows: Sequence[Row]) -> dict[str, list[tuple[Row, Row | None]]]:
    """(our row, torch's row or None) per operation and shape, each shape once; swept configurations left out."""
    found: dict[str, dict[tuple[str, str], dict[str, Row]]] = {}
    for row in rows:
        if row["variant"] == OURS or row["variant"].startswith("torch"):
            shape = found.setdefault(row["op"], {}).setdefault((row["model"], row["shape"]), {})
            shape.setdefault(OURS if row["variant"] == OURS else "torch", row)
    return {
        op: [(shape[OURS], shape.get("torch")) for shape in shapes.values() if OURS in shape]
        for op, shapes in found.items()
    }


def roofline(recorded: Mapping[str, Any]) -> str:
    """FLOP/s over FLOP/byte, both logarithmic, under the measured ceilings: an SVG."""
    ceiling = bandwidth_ceiling(recorded)
    rates = {name: recorded["ceilings"][name] for name in ("matrix_bf16", "matrix_fp8")}
    size = f'viewBox="0 0 {_WIDTH + _LEGEND} {_HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH + _LEGEND}" height="{_HEIGHT}" fill="white"/>',
    ]
    for decade in range(_X_DECADES[0], _X_DECADES[1] + 1):
        x = _x(10.0**decade)
        parts.append(f'<line x1="{x:.1f}" y1="20" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 30}" text-anchor="middle">{10.0**decade:g}</text>')
    for decade in range(_Y_DECADES[0], math.floor(_Y_DECADES[1]) + 1):
        y = _y(10.0**decade)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0 ** (decade - 12):g}</text>'
        )
    for name, rate in rates.items():
        knee = rate / ceiling
        start = 10.0 ** _X_DECADES[0]
        points = (
            f"{_x(start):.1f},{_y(start * ceiling):.1f} {_x(knee):.1f},{_y(rate):.1f} {_WIDTH},{_y(rate):.1f}"
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="black"/>')
        parts.append(
            f'<text x="{_WIDTH - 4}" y="{_y(rate) - 5:.1f}" text-anchor="end">{name} {rate / 1e12:.0f} TFLOP/s</text>'
        )
    label = f"{ceiling / 1e12:.2f} TB/s"
    parts.append(f'<text x="{_x(1.2):.1f}" y="{_y(1.2 * ceiling) - 14:.1f}" text-anchor="end">{label}</text>')
    for index, (op, pairs) in enumerate(by_operation(recorded["rows"]).items()):
        color = _COLORS[index % len(_COLORS)]
        for ours, _ in pairs:
            x, y = _x(ours["flops"] / ours["bytes"]), _y(ours["flops"] / ours["time_s"])
            title = escape(f"{op} {ours['model']} {ours['shape']}")
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"><title>{title}</title></circle>'
            )
        line = 40 + 20 * index
        parts.append(f'<circle cx="{_WIDTH + 20}" cy="{line - 4}" r="4" fill="{color}"/>')
        parts.append(f'<text x="{_WIDTH + 30}" y="{line}">{escape(op)}</text>')
    middle = (_LEFT + _WIDTH) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">FLOP per byte</text>')
    parts.append('<text x="14" y="14">TFLOP/s</text>')
    return "\n".join([*parts, "</svg>", ""])


def _x(intensity: float) -> float:
    low, high = _X_DECADES
    return _LEFT + (math.log10(intensity) - low) / (high - low) * (_WIDTH - _LEFT)


def _y(rate: float) -> float:
    low, high = _Y_DECADES
    bottom = _HEIGHT - _BOTTOM
    return bottom - (math.log10(rate) - low) / (high - low) * (bottom - 20)
