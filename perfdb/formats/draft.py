"""What readers build a Reading with: checked values, stable names, items that fail alone.

A reader walks its file inside `with draft.item(at):` blocks. An ItemError in a block rejects that item and the
rest goes on; a FormatError ends the reading, and nothing of it is returned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

from perfdb.formats.errors import ItemError
from perfdb.formats.reading import (
    BenchmarkReading,
    CommitReading,
    EnvironmentReading,
    MetricReading,
    Number,
    Params,
    Reading,
    Rejection,
    identity,
)
from perfdb.formats.values import clean, finite, is_number, median, stable
from perfdb.units import convert as convert_unit
from perfdb.units import direction, lookup

MAX_NAME_CHARS = 2000
MAX_REJECTIONS = 1000
_MAX_NOTES = 50


def metric(
    name: str,
    unit: str,
    *,
    lower_is_better: bool | Literal["unit"] | None = "unit",
    launches: Sequence[Sequence[Any]] = ((),),
    value: Any = None,
    statistic: str = "median",
    zero_allowed: bool = False,
    summary: dict[str, Any] | None = None,
    **marks: Any,
) -> MetricReading:
    """A checked metric. Raises ItemError for a number that is not finite and for a time that cannot be.

    lower_is_better: "unit" takes the direction of the unit. A duration of zero or less is impossible and would
    pass every upper bound; `zero_allowed` is for phases that may take no time at all.
    """
    known = lookup(unit)
    checked = tuple(tuple(finite(sample, name) for sample in samples) for samples in launches)
    headline = None if value is None else finite(value, name)
    if known.family.split("/")[0] == "time":
        for number in (headline, *(sample for samples in checked for sample in samples)):
            if number is not None and (number < 0 or (number == 0 and not zero_allowed)):
                raise ItemError(f"{number} {unit} is no possible duration", name)
    lower = direction(unit) if lower_is_better == "unit" else lower_is_better
    figures = {
        key: each if is_number(each) or isinstance(each, str) else None
        for key, each in (summary or {}).items()
    }
    return MetricReading(
        clean(name), clean(unit), lower, launches=checked, value=headline, statistic=statistic,
        summary=figures, **marks,
    )  # fmt: skip


@dataclass
class _Repeats:
    """One metric of one benchmark with its repeats, joined once at the end so that many lines stay linear."""

    parts: list[MetricReading]
    by_launch: bool = False


@dataclass
class _Entry:
    reading: BenchmarkReading
    metrics: dict[str, _Repeats]


@dataclass
class Draft:
    """A reading in the making. Not thread-safe, used by one reader once."""

    format: str
    klass: dict[str, Any] = field(default_factory=dict)
    boundary: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    commit: CommitReading | None = None
    started_at: str | None = None
    warnings: list[str] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _places: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def reject(self, at: str, reason: str, name: str | None = None) -> None:
        self.rejected.append(Rejection(clean(at), clean(reason), None if name is None else clean(name)))

    @contextmanager
    def item(self, at: str, name: str | None = None) -> Iterator[None]:
        """Reject what fails inside, and go on after. Blocks nest: the position names each of them once."""
        self._places.append(at)
        try:
            yield
        except ItemError as error:
            self.reject(_position([*self._places, error.at]), error.reason, name)
        except ArithmeticError:
            # Each number is finite, but a sum or a ratio of them is not.
            self.reject(_position(self._places), "numbers out of range", name)
        finally:
            self._places.pop()

    def metrics(self, at: str, *builders: Any) -> list[MetricReading]:
        """The metrics that the callables give; one that fails is rejected alone."""
        made: list[MetricReading] = []
        for build in builders:
            with self.item(at):
                result = build()
                if result is not None:
                    made.append(result)
        return made

    def add(
        self,
        name: str,
        metrics: Sequence[MetricReading] = (),
        *,
        params: Params | None = None,
        repeat: Literal["samples", "launches", "metrics", "conflict"] = "conflict",
        **rest: Any,
    ) -> None:
        """Add a benchmark, or what a repeat of it adds: more samples of its launch, one more launch, more metrics.

        Raises ItemError for an unusable name and, under "conflict", for an identity given twice (under "metrics"
        for a metric given twice): a second result never overwrites the first.
        """
        if not name.strip():
            raise ItemError("a benchmark without a name")
        if len(name) > MAX_NAME_CHARS:
            raise ItemError(f"a name of {len(name)} characters; {MAX_NAME_CHARS} are allowed")
        reading = BenchmarkReading(stable(name.strip()), _stable_params(params or {}), **rest)
        key = identity(reading.name, reading.params, reading.version)
        known = self._entries.get(key)
        if known is None:
            self._entries[key] = _Entry(reading, _by_name(metrics))
            self._names.add(reading.name)
            return
        if repeat == "conflict":
            raise ItemError(
                f"{reading.name}: the same benchmark and parameters a second time; the first is kept"
            )
        taken = [each.name for each in metrics if each.name in known.metrics]
        if repeat == "metrics" and taken:
            raise ItemError(f"{reading.name}: {taken[0]} a second time; the first is kept")
        known.reading = _worse(known.reading, reading)
        for each in metrics:
            repeats = known.metrics.setdefault(each.name, _Repeats([]))
            repeats.parts.append(_in_unit_of(repeats.parts[0], each) if repeats.parts else each)
            repeats.by_launch = repeat == "launches"

    def has(self, name: str) -> bool:
        """Whether a benchmark of this name is there already, at whatever parameters."""
        return stable(name.strip()) in self._names

    @property
    def has_any(self) -> bool:
        """Whether any benchmark is there."""
        return bool(self._entries)

    def finish(self) -> Reading:
        """The finished reading: headlines filled in, text cleaned, an empty one warned of."""
        benchmarks = tuple(_finished(entry) for entry in self._entries.values())
        if not benchmarks:
            self.warn("no benchmark in this file: that is not a pass")
        rejected = self.rejected
        if len(rejected) > MAX_REJECTIONS:
            left_out = len(rejected) - MAX_REJECTIONS
            rejected = [*rejected[:MAX_REJECTIONS], Rejection("", f"and {left_out} more items rejected")]
        return Reading(
            format=self.format,
            environment=EnvironmentReading(_tidy(self.klass), _tidy(self.boundary), _tidy(self.info)),
            commit=self.commit,
            benchmarks=benchmarks,
            warnings=_capped(list(dict.fromkeys(clean(warning) for warning in self.warnings))),
            rejected=tuple(rejected),
            started_at=self.started_at,
        )


def _capped(texts: list[str]) -> tuple[str, ...]:
    """The first of very many, and how many more there are."""
    if len(texts) <= MAX_REJECTIONS:
        return tuple(texts)
    return (*texts[:MAX_REJECTIONS], f"and {len(texts) - MAX_REJECTIONS} more")


def _position(places: Sequence[str]) -> str:
    """The places from outside in, without one that the next repeats in full."""
    kept = [
        place
        for place, inner in zip(places, [*places[1:], ""], strict=True)
        if place and not inner.startswith(place)
    ]
    return " ".join(kept)


def _by_name(metrics: Sequence[MetricReading]) -> dict[str, _Repeats]:
    named: dict[str, _Repeats] = {}
    for each in metrics:
        if each.name in named:
            raise ItemError(f"metric {each.name} given twice")
        named[each.name] = _Repeats([each])
    return named


def _worse(first: BenchmarkReading, second: BenchmarkReading) -> BenchmarkReading:
    """One failed repeat makes the benchmark failed."""
    fresh = () if len(first.notes) >= _MAX_NOTES else second.notes
    notes = (*first.notes, *(note for note in fresh if note not in first.notes))
    if first.status == "ok" and second.status != "ok":
        return replace(first, status=second.status, reason=second.reason, notes=notes)
    return replace(first, notes=notes)


def _in_unit_of(first: MetricReading, repeat: MetricReading) -> MetricReading:
    """A repeat in the unit of the first; a unit of another family is refused."""
    if repeat.unit == first.unit:
        return repeat
    if lookup(repeat.unit).family != lookup(first.unit).family:
        raise ItemError(f"{first.name}: unit {repeat.unit!r} after {first.unit!r} for the same benchmark")

    def converted(values: Sequence[Number]) -> tuple[Number, ...]:
        return tuple(finite(convert_unit(value, repeat.unit, first.unit), first.name) for value in values)

    return replace(
        repeat,
        unit=first.unit,
        launches=tuple(converted(samples) for samples in repeat.launches),
        launch_values=converted(repeat.launch_values),
        value=None if repeat.value is None else converted((repeat.value,))[0],
    )


def _joined(repeats: _Repeats) -> MetricReading:
    """The repeats as samples of one launch, or each as a launch of its own."""
    first, *more = repeats.parts
    if not more:
        return first
    launches = [samples for part in repeats.parts for samples in part.launches]
    flagged = tuple(each for part in repeats.parts for each in part.flagged)
    whole = replace(first, flagged=flagged, partial=any(part.partial for part in repeats.parts))
    if not repeats.by_launch:
        return replace(whole, launches=(tuple(chain.from_iterable(launches)),), value=None)
    values = tuple(value for part in repeats.parts for value in _values(part))
    return replace(whole, launches=tuple(launches), launch_values=values, value=median(values))


def _values(reading: MetricReading) -> tuple[Number, ...]:
    if reading.launch_values:
        return reading.launch_values
    if reading.value is not None:
        return (reading.value,)
    return tuple(median(samples) for samples in reading.launches if samples)


def _finished(entry: _Entry) -> BenchmarkReading:
    metrics = tuple(_with_headline(_joined(repeats)) for repeats in entry.metrics.values())
    reading = replace(
        entry.reading,
        metrics=metrics,
        notes=tuple(clean(note) for note in entry.reading.notes),
        reason=clean(entry.reading.reason),
        info=_tidy(entry.reading.info),
    )
    if reading.status == "ok" and not metrics:
        return replace(reading, status="invalid", reason="no usable metric")
    return reading


def _with_headline(made: MetricReading) -> MetricReading:
    if made.value is not None or not any(made.launches):
        return made
    medians = [median(samples) for samples in made.launches if samples]
    return replace(made, value=median(medians))


def _stable_params(params: Params) -> Params:
    """An infinite rate is a parameter too; JSON has no word for it, so it is "inf"."""
    tidied: Params = _tidy(params)
    return {key: stable(value) if isinstance(value, str) else value for key, value in tidied.items()}


def _tidy(value: Any) -> Any:
    """Descriptive data fit for storage: text cleaned, numbers that JSON cannot hold as text, nulls left out."""
    if isinstance(value, dict):
        return {clean(str(key)): _tidy(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [_tidy(each) for each in value]
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value) if abs(value) < 10**30 else "a very large integer"
    return value
