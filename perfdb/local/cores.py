"""Which cores the services run on, and which are left to measuring."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MEASURE_CPUS_VARIABLE = "PERFDB_MEASURE_CPUS"
_GROUPS_PER_SERVICE_GROUP = 8
_TOPOLOGY = Path("/sys/devices/system/cpu")


class CoresError(Exception):
    """The cores that were asked for cannot be had; the message says which and why."""


@dataclass(frozen=True)
class CorePlan:
    """Two disjoint sets of logical CPUs, or twice the same one where there is a single CPU."""

    services: frozenset[int]
    measuring: frozenset[int]


def plan_cores(groups: Iterable[frozenset[int]]) -> CorePlan:
    """Split `groups` (the logical CPUs of one physical core each) between services and measuring.

    Siblings stay together, since a busy sibling slows a measurement as much as a busy core. Services get
    one core in eight, at least one. Where all CPUs are siblings of one core they are split all the same: the
    neighbour's noise is smaller than that of a shared run queue.
    """
    ordered = sorted(groups, key=min)
    if len(ordered) == 1:
        ordered = [frozenset({cpu}) for cpu in sorted(ordered[0])]
    if len(ordered) == 1:
        return CorePlan(services=ordered[0], measuring=ordered[0])
    service_count = max(1, len(ordered) // _GROUPS_PER_SERVICE_GROUP)
    return CorePlan(
        services=frozenset().union(*ordered[:service_count]),
        measuring=frozenset().union(*ordered[service_count:]),
    )


def current_plan() -> CorePlan:
    """The plan of this machine, or the one that PERFDB_MEASURE_CPUS asks for: those, and the rest for services.

    Raises:
        CoresError: the variable is no list of CPUs, or names some that this process may not use.
    """
    asked = os.environ.get(MEASURE_CPUS_VARIABLE, "")
    if not asked:
        return plan_cores(usable_core_groups())
    try:
        measuring = parse_cpu_list(asked)
    except ValueError as error:
        raise CoresError(f"{MEASURE_CPUS_VARIABLE}={asked!r} is no list of CPUs such as 2-7,9") from error
    usable = frozenset(os.sched_getaffinity(0))
    if not measuring <= usable:
        beyond = format_cpu_list(measuring - usable)
        raise CoresError(f"{MEASURE_CPUS_VARIABLE} names CPUs that perfdb may not use here: {beyond}")
    return CorePlan(services=usable - measuring or usable, measuring=measuring)


def usable_core_groups() -> list[frozenset[int]]:
    """The CPUs that this process may use, grouped by physical core (each alone where /sys does not tell)."""
    usable = os.sched_getaffinity(0)
    return sorted({_siblings(cpu) & usable for cpu in usable}, key=min)


def _siblings(cpu: int) -> frozenset[int]:
    path = _TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        text = path.read_text(encoding="ascii")
    except OSError:
        return frozenset({cpu})
    return parse_cpu_list(text) | {cpu}


def parse_cpu_list(text: str) -> frozenset[int]:
    """The kernel's list format: `0-3,8` is {0, 1, 2, 3, 8}."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """A list that `parse_cpu_list` reads back: `0,1,5`."""
    return ",".join(str(cpu) for cpu in sorted(cpus))
