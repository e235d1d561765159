"""Draw the pictures of docs/statistics.md as small SVG files, from simulation with fixed seeds.

python -m benchmarks.statistics_pictures [--into docs/pictures] [--h200 ../shared/data/h200]
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.verdict_peers import PEERS
from benchmarks.verdicts import LAUNCH_NOISE, ROOT, load
from perfdb.stats import Count, Noise, Policy, requests_needed, tail_bounds
from perfdb.stats.effect import measure, measure_with_noise
from perfdb.stats.rates import share_interval

COLOURS = ("#3366aa", "#cc6633", "#33884d", "#8855aa", "#777777")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 320, 64, 176, 28, 46


@dataclass
class Chart:
    """A chart with two axes; values are given in data units."""

    title: str
    x_label: str
    y_label: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    x_log: bool = False
    y_log: bool = False
    parts: list[str] = field(default_factory=list)
    names: int = 0

    def x(self, value: float) -> float:
        return LEFT + _place(value, self.x_range, log=self.x_log) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - _place(value, self.y_range, log=self.y_log) * (HEIGHT - TOP - BOTTOM)

    def line(
        self, xs: Sequence[float], ys: Sequence[float], *, name: str = "", colour: str, dash: str = ""
    ) -> None:
        points = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(xs, ys, strict=True))
        style = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{style}/>'
        )
        if name:
            self.label(name, colour=colour)

    def dots(self, xs: Sequence[float], ys: Sequence[float], *, name: str = "", colour: str) -> None:
        for a, b in zip(xs, ys, strict=True):
            self.parts.append(f'<circle cx="{self.x(a):.1f}" cy="{self.y(b):.1f}" r="3.5" fill="{colour}"/>')
        if name:
            self.label(name, colour=colour)

    def bar(self, x: float, low: float, high: float, *, colour: str) -> None:
        self.parts.append(
            f'<line x1="{self.x(x):.1f}" y1="{self.y(low):.1f}" x2="{self.x(x):.1f}" y2="{self.y(high):.1f}" '
            f'stroke="{colour}" stroke-width="1.5"/>'
        )

    def label(self, name: str, *, colour: str) -> None:
        place = TOP + 12 + 18 * self.names
        self.names += 1
        self.parts.append(_text(WIDTH - RIGHT + 12, place, name, colour=colour))

    def svg(self, x_ticks: Sequence[float], y_ticks: Sequence[float], *, unit: str = "") -> str:
        grid = []
        for tick in x_ticks:
            grid.append(_text(self.x(tick), HEIGHT - BOTTOM + 18, f"{tick:g}", anchor="middle"))
        for tick in y_ticks:
            grid.append(
                f'<line x1="{LEFT}" y1="{self.y(tick):.1f}" x2="{WIDTH - RIGHT}" y2="{self.y(tick):.1f}" '
                f'stroke="#dddddd"/>{_text(LEFT - 6, self.y(tick) + 4, f"{tick:g}{unit}", anchor="end")}'
            )
        words = [
            _text(LEFT, 18, self.title, size=14),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, self.x_label, anchor="middle"),
            f'<g transform="rotate(-90 14 {HEIGHT / 2})">{_text(14, HEIGHT / 2, self.y_label, anchor="middle")}</g>',
        ]
        return _document(HEIGHT, [*grid, *self.parts, *words])


def modes() -> str:
    """Chance that two launch modes imitate a change."""
    chart = Chart(
        "Two launch modes imitate a change", "launches a side", "chance, %", (2, 10), (0.001, 20), y_log=True
    )
    counts = list(range(2, 11))
    for share, colour in zip((0.5, 0.3, 0.15), COLOURS, strict=False):
        chance = [200.0 * (share * (1.0 - share)) ** n for n in counts]
        chart.line(
            counts, [max(value, 0.001) for value in chance], name=f"{100 * share:g} % slow", colour=colour
        )
    chart.line([2, 10], [1, 1], name="1 % allowed", colour="#aa2222", dash="5 4")
    return chart.svg(counts, (0.001, 0.01, 0.1, 1, 10), unit=" %")


def power() -> str:
    """Share found against the true effect, at 1 % launch noise."""
    chart = Chart("Found, at 1 % launch noise", "true slowdown, %", "regressed", (0, 6), (0, 100))
    rng, policy = np.random.default_rng(1), Policy()
    effects = np.linspace(0.0, 0.06, 25)
    noise = Noise(0.01, degrees=100)
    for (launches, known), colour in zip(
        [(3, True), (5, False), (10, False), (20, False)], COLOURS, strict=False
    ):
        base, head = rng.normal(0.0, 0.01, (2, 3000, launches))
        found = []
        for size in effects:
            shifted = head + math.log1p(size)
            effect = (
                measure_with_noise(base, shifted, noise=noise, confidence=policy.confidence)
                if known
                else measure(base, shifted, confidence=policy.confidence)
            )
            met = (effect.p_value < policy.alpha) & (effect.estimate >= math.log1p(policy.relative_floor))
            found.append(100.0 * float(met.mean()))
        name = f"{launches} launches" + (", noise known" if known else "")
        chart.line(list(100.0 * effects), found, name=name, colour=colour)
    chart.line([0, 6], [80, 80], colour="#bbbbbb", dash="5 4")
    return chart.svg(range(7), (0, 20, 40, 60, 80, 100), unit=" %")


def coverage() -> str:
    """Coverage of the 95 % interval under five kinds of noise."""
    chart = Chart("Coverage of the 95 % interval", "launches a side", "covers", (2, 22), (92, 100))
    for k, ((kind, draw), colour) in enumerate(zip(LAUNCH_NOISE.items(), COLOURS, strict=True)):
        places, shares = [], []
        for size in (3, 5, 10, 20):
            logs = draw(np.random.default_rng([2, k, size]), (4000, 2, size))
            effect = measure(logs[:, 0], logs[:, 1], confidence=0.95)
            hits = int(((effect.low <= 0.0) & (effect.high >= 0.0)).sum())
            low, high = share_interval(Count(hits, 4000))
            places.append(size + 0.22 * (k - 2))
            shares.append(100.0 * hits / 4000)
            chart.bar(places[-1], 100.0 * low, 100.0 * high, colour=colour)
        chart.dots(places, shares, name=kind, colour=colour)
    chart.line([2, 22], [95, 95], colour="#bbbbbb", dash="5 4")
    return chart.svg((3, 5, 10, 20), (92, 94, 96, 98, 100), unit=" %")


def tails() -> str:
    """Exact bounds of a p99 against the number of requests, exponential latencies."""
    chart = Chart(
        "p99 with exact 95 % bounds", "requests", "latency / mean", (100, 20_000), (2, 10), x_log=True
    )
    rng = np.random.default_rng(3)
    values = rng.exponential(1.0, 20_000)
    truth = float(stats.expon.ppf(0.99))
    for count in (100, 200, 299, 459, 700, 1000, 2000, 5000, 10_000, 20_000):
        bounds = tail_bounds(values[:count], 0.99)
        colour = COLOURS[0] if bounds.enough else COLOURS[1]
        if bounds.value is not None and bounds.low is not None:
            chart.bar(
                count, bounds.low, 10.0 if bounds.high is None else min(bounds.high, 10.0), colour=colour
            )
            chart.dots([count], [bounds.value], colour=colour)
    needed = requests_needed(0.99, confidence=0.95)
    chart.line([100, 20_000], [truth, truth], name="true p99", colour="#bbbbbb", dash="5 4")
    chart.label(f"from {needed}: a claim", colour=COLOURS[0])
    chart.label("too few requests", colour=COLOURS[1])
    return chart.svg((100, 1000, 10_000), (2, 4, 6, 8, 10))


def rules(folder: Path) -> str | None:
    """Share of equal code called different by usual rules, on real launches."""
    data = load(folder)
    if data is None:
        return None
    rows = []
    for k, peer in enumerate(PEERS):
        rng = np.random.default_rng(4)
        shares = []
        for launches in data.naive.values():
            orders = [rng.permutation(len(launches))[:10] for _ in range(60)]
            called = [
                peer.decides([launches[i] for i in o[:5]], [launches[i] for i in o[5:]]) for o in orders
            ]
            shares.append(100.0 * float(np.mean(called)))
        top = 46 + 44 * k
        mean, worst = float(np.mean(shares)), max(shares)
        scale = (WIDTH - 320) / 100.0
        rows += [
            _text(16, top + 14, peer.name),
            f'<rect x="300" y="{top}" width="{worst * scale:.1f}" height="20" fill="#ddddee"/>',
            f'<rect x="300" y="{top + 4}" width="{max(mean * scale, 1.0):.1f}" height="12" fill="{COLOURS[0]}"/>',
            _text(306 + worst * scale, top + 14, f"{mean:.1f} %, worst {worst:.0f} %"),
        ]
    title = "Equal code called different (20 cases on one H200): mean, and worst case in grey"
    return _document(46 + 44 * len(PEERS), [_text(16, 22, title, size=14), *rows])


def _place(value: float, limits: tuple[float, float], *, log: bool) -> float:
    low, high = (math.log(limit) for limit in limits) if log else limits
    return ((math.log(value) if log else value) - low) / (high - low)


def _text(
    x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", colour: str = "#333333"
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(words)}</text>"


def _document(height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">'
    return (
        "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>"]) + "\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--h200", type=Path, default=ROOT.parent / "shared" / "data" / "h200")
    options = parser.parse_args(arguments)
    options.into.mkdir(parents=True, exist_ok=True)
    drawings = {"modes": modes(), "power": power(), "coverage": coverage(), "tails": tails()}
    drawn = rules(options.h200)
    if drawn is None:
        print(f"{options.h200} is not there: rules.svg is left as it is", file=sys.stderr)
    else:
        drawings["rules"] = drawn
    for name, picture in drawings.items():
        (options.into / f"{name}.svg").write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
