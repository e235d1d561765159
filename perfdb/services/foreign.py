"""What a benchmark command printed in a foreign format, as measurements of the one case that ran it."""

from __future__ import annotations

from dataclasses import replace

from perfdb.formats import FormatError, MetricReading, read
from runners.result import CaseSpec, Measurement, MetricSpec


def read_output(text: str, spec: CaseSpec) -> tuple[list[Measurement], str]:
    """Measurements and, where nothing could be read, the reason.

    One benchmark in the output gives metrics by their own names; several give `benchmark/metric`. Unit, direction
    and statistic that the manifest declares for a name win over what the format says.
    """
    try:
        reading = read(text.encode(), spec.output)
    except FormatError as error:
        return [], str(error)
    declared = {metric.name: metric for metric in spec.metrics}
    several = len(reading.benchmarks) > 1
    out: list[Measurement] = []
    for benchmark in reading.benchmarks:
        if benchmark.status != "ok":
            continue
        inside = "".join(f"[{key}={value}]" for key, value in sorted(benchmark.params.items()))
        prefix = f"{benchmark.name}{inside}/" if several else ""
        for metric in benchmark.metrics:
            out.extend(_measurement(metric, prefix + metric.name, declared.get(prefix + metric.name)))
    if out:
        return out, ""
    rejected = "; ".join(f"{item.at}: {item.reason}" for item in reading.rejected[:3])
    return [], f"{spec.output}: the output holds no result{': ' + rejected if rejected else ''}"


def _measurement(metric: MetricReading, name: str, declared: MetricSpec | None) -> list[Measurement]:
    samples = [float(x) for launch in metric.launches for x in launch]
    if not samples and metric.value is None:
        return []
    spec = declared or MetricSpec(name, metric.unit, metric.lower_is_better, metric.statistic)
    spec = replace(spec, unit=metric.unit) if declared else spec
    # A figure that the file gives is kept where it was computed from more than the samples shown.
    own = metric.value if (metric.partial or not samples or metric.statistic != spec.statistic) else None
    return [Measurement(metric=spec, samples=samples, value=None if own is None else float(own))]
