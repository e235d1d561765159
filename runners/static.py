"""The static tier: a Triton kernel compiled ahead of time, no GPU needed, and what its machine code says.

A benchmark's `kernels` ("module:function") is called with the case's params and returns the kernels to compile: a
mapping, or a list of them, each

    kernel      the @triton.jit function, or "module:function"
    signature   argument -> type: "*bf16", "i32", "fp32", "tensordesc<bf16[128, 64]>"; ":16" after a pointer or an
                integer promises a multiple of 16, as Triton's launcher would find it
    constants   argument -> value of each tl.constexpr
    options     num_warps, num_stages, ... (optional)
    name        how to call it in a report (optional)

Everything is deterministic: the same source, Triton and options give the same numbers and the same hash on any host.
"""

from __future__ import annotations

import inspect
import math
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .context import Context
from .loading import CaseError, check_accepts, resolve
from .result import CaseSpec, Measurement, RunResult, Status
from .sass import MachineCode, read_machine_code

KNOWN_OPTIONS = frozenset({"kernels", "targets"})
DEFAULT_TARGET = "sm_90"
_TARGET = re.compile(r"sm_(\d{2,3})[af]?")
_KNOWN_KEYS = frozenset({"kernel", "signature", "constants", "options", "name"})
_DIVISIBLE = ":16"
_TOOL_TIMEOUT_S = 60.0
_WARP = 32


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor holds: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""

    warps: int
    blocks: int
    shared_bytes: int
    registers: int = 65536
    register_unit: int = 256
    warp_unit: int = 4
    shared_unit: int = 128
    reserved_shared_bytes: int = 1024


MULTIPROCESSORS: dict[int, Multiprocessor] = {
    80: Multiprocessor(warps=64, blocks=32, shared_bytes=164 * 1024),
    86: Multiprocessor(warps=48, blocks=16, shared_bytes=100 * 1024),
    89: Multiprocessor(warps=48, blocks=24, shared_bytes=100 * 1024),
    90: Multiprocessor(warps=64, blocks=32, shared_bytes=228 * 1024),
    100: Multiprocessor(warps=64, blocks=32, shared_bytes=228 * 1024),
    120: Multiprocessor(warps=48, blocks=32, shared_bytes=100 * 1024),
}


@dataclass(frozen=True)
class StaticEntry:
    """One kernel to compile, as the module docstring describes it."""

    kernel: Any
    signature: dict[str, str]
    constants: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class StaticMetric:
    name: str
    unit: str
    value: float


@dataclass(frozen=True)
class StaticReport:
    """One kernel on one target. Plain numbers and texts: `dataclasses.asdict` gives JSON.

    registers: per thread. threads: per block. shared_bytes: per block, static and dynamic.
    occupancy: resident warps over the most a multiprocessor holds, by the kernel's own needs (0 when none fits).
    artifact: sha256 of the machine code with its resource use. compiler: versions that shape it.
    """

    name: str
    target: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    threads: int
    occupancy: float
    code: MachineCode
    artifact: str
    compiler: dict[str, str]

    def metrics(self) -> tuple[StaticMetric, ...]:
        code = self.code
        own = (
            StaticMetric("registers", "registers", self.registers),
            StaticMetric("spills", "B", code.spill_store_bytes + code.spill_load_bytes),
            StaticMetric("stack", "B", self.stack_bytes),
            StaticMetric("shared_memory", "B", self.shared_bytes),
            StaticMetric("instructions", "instructions", code.instructions),
            StaticMetric("matrix_instructions", "instructions", code.matrix_instructions),
            StaticMetric("occupancy", "ratio", self.occupancy),
            StaticMetric("widest_global_access", "B", code.widest_global_access_bytes),
        )
        mix = (
            StaticMetric(f"{name}_instructions", "instructions", count) for name, count in code.mix.items()
        )
        return (*own, *(metric for metric in mix if metric.name != "matrix_instructions"))


def run_case(case: CaseSpec, context: Context) -> RunResult:
    """Compile the case's kernels; a sample a kernel and target, in the order declared.

    Raises CaseError for a declaration that does not fit, a metric this tier does not know, or a failed compilation.
    """
    unknown = set(case.options) - KNOWN_OPTIONS
    if unknown:
        raise CaseError(f"options of {case.benchmark!r}: unknown {', '.join(sorted(unknown))}")
    where = case.options.get("kernels") or case.entry
    if not where:
        raise CaseError("the static tier needs options.kernels")
    declare = resolve(where, role="kernels")
    check_accepts(declare, case.params, role="kernels")
    entries = read_entries(declare(**case.params), source=where)
    targets = case.options.get("targets") or [DEFAULT_TARGET]
    reports = [measure_static(entry, target=target) for entry in entries for target in targets]
    for report in reports:
        context.log(f"{report.name} {report.target}: {report.artifact}")
    by_name = [{metric.name: metric for metric in report.metrics()} for report in reports]
    measurements = []
    for metric in case.metrics:
        found = [values.get(metric.name) for values in by_name]
        known = [value for value in found if value is not None]
        if len(known) != len(found):
            raise CaseError(
                f"metric {metric.name!r}: the static tier measures {', '.join(sorted(by_name[0]))}"
            )
        wrong = {value.unit for value in known} - {metric.unit}
        if wrong:
            raise CaseError(f"metric {metric.name!r} is in {wrong.pop()!r}, not in {metric.unit!r}")
        measurements.append(Measurement(metric, [float(value.value) for value in known]))
    summary = {"static": [asdict(report) for report in reports]}
    return RunResult(
        case.benchmark, case.params, case.tier, Status.OK, measurements=measurements, trace_summary=summary
    )


def read_entries(declared: Any, *, source: str) -> list[StaticEntry]:
    """Entries from what `source` returned. Raises CaseError naming the entry and key that do not fit."""
    items = [declared] if isinstance(declared, Mapping) else declared
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        raise CaseError(f"{source} returned {type(declared).__name__}, expected a mapping or a list of them")
    return [_read_entry(item, f"{source}[{index}]") for index, item in enumerate(items)]


def _read_entry(item: Any, place: str) -> StaticEntry:
    if not isinstance(item, Mapping):
        raise CaseError(f"{place} is {type(item).__name__}, expected a mapping")
    unknown = set(item) - _KNOWN_KEYS
    if unknown:
        raise CaseError(f"{place}: unknown {', '.join(sorted(map(str, unknown)))}")
    if "kernel" not in item or "signature" not in item:
        raise CaseError(f"{place}: expected kernel and signature")
    for key in ("signature", "constants", "options"):
        if not isinstance(item.get(key, {}), Mapping):
            raise CaseError(f"{place}: {key} is {type(item[key]).__name__}, expected a mapping")
    kernel = item["kernel"]
    if isinstance(kernel, str):
        kernel = resolve(kernel, role="kernel")
    return StaticEntry(
        kernel=kernel,
        signature=dict(item["signature"]),
        constants=dict(item.get("constants", {})),
        options=dict(item.get("options", {})),
        name=str(item.get("name", "")) or str(getattr(kernel, "__name__", place)),
    )


def measure_static(entry: StaticEntry, *, target: str = DEFAULT_TARGET) -> StaticReport:
    """Compile one kernel for a target such as "sm_90" and read its machine code.

    Raises CaseError when the target is unknown, the entry does not fit the kernel, Triton is set to interpret, or the
    compilation fails.
    """
    found = _TARGET.fullmatch(target)
    capability = int(found[1]) if found else 0
    if capability not in MULTIPROCESSORS:
        known = ", ".join(f"sm_{number}" for number in MULTIPROCESSORS)
        raise CaseError(f"target {target!r} is not one of {known}")
    compiled = _compile(entry, capability)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(compiled.asm["cubin"])
        usage = _tool("-res-usage", cubin)
        code = read_machine_code(_tool("-sass", cubin))
    registers, stack, static_shared = _resources(usage, entry.name)
    # The dynamic part, which Triton asks for at launch; the listing's own figure is what the hardware reserves.
    reserved = MULTIPROCESSORS[capability].reserved_shared_bytes if capability >= 80 else 0
    shared = int(compiled.metadata.shared) + max(0, static_shared - reserved)
    threads = _threads(compiled.asm["ptx"], int(compiled.metadata.num_warps))
    return StaticReport(
        name=entry.name,
        target=target,
        registers=registers,
        stack_bytes=stack,
        shared_bytes=shared,
        threads=threads,
        occupancy=occupancy(
            MULTIPROCESSORS[capability], registers=registers, shared_bytes=shared, threads=threads
        ),
        code=code,
        artifact=f"sha256:{_digest(code.digest, registers, stack, shared, threads)}",
        compiler=_compiler(capability),
    )


def occupancy(unit: Multiprocessor, *, registers: int, shared_bytes: int, threads: int) -> float:
    """Resident warps over the most there can be, limited by registers, shared memory, warps and blocks.

    Allocation in whole units, as in the CUDA occupancy calculator. 0.0 when not one block fits.
    """
    warps = math.ceil(threads / _WARP)
    registers_per_warp = math.ceil(registers * _WARP / unit.register_unit) * unit.register_unit
    warps_by_registers = unit.registers // max(registers_per_warp, 1) // unit.warp_unit * unit.warp_unit
    shared = math.ceil((shared_bytes + unit.reserved_shared_bytes) / unit.shared_unit) * unit.shared_unit
    blocks = min(unit.warps // warps, warps_by_registers // warps, unit.shared_bytes // shared, unit.blocks)
    return blocks * warps / unit.warps


def _compile(entry: StaticEntry, capability: int) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.runtime.jit import JITFunction

    if triton.knobs.runtime.interpret:
        raise CaseError("TRITON_INTERPRET is set: nothing is compiled while kernels are interpreted")
    kernel = entry.kernel
    while not isinstance(kernel, JITFunction) and hasattr(kernel, "fn"):
        kernel = kernel.fn  # @triton.autotune and @triton.heuristics wrap the function
    if not isinstance(kernel, JITFunction):
        raise CaseError(f"{entry.name} is {type(entry.kernel).__name__}, expected a @triton.jit function")
    signature, divisible = _signature(entry, list(inspect.signature(kernel.fn).parameters))
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs=dict(entry.constants),
        attrs={(index,): [["tt.divisibility", 16]] for index in divisible},
    )
    # Triton's default for fusing multiply and add changes between versions; ours does not.
    options = {"enable_fp_fusion": True, **entry.options}
    with tempfile.TemporaryDirectory() as folder, triton.knobs.cache.scope():
        triton.knobs.cache.dir = folder
        try:
            return triton.compile(source, target=GPUTarget("cuda", capability, _WARP), options=options)
        except Exception as error:  # Triton and the tools below it raise errors of many kinds
            text = str(error).strip() or type(error).__name__
            raise CaseError(
                f"{entry.name} does not compile for sm_{capability}: {type(error).__name__}: {text}"
            ) from error


@dataclass(frozen=True)
class _Signature:
    types: dict[str, str]
    divisible: tuple[int, ...]

    def __iter__(self) -> Any:
        return iter((self.types, self.divisible))


def _signature(entry: StaticEntry, arguments: list[str]) -> _Signature:
    """Types in the order of the kernel's arguments, and which of them promise a multiple of 16."""
    for given, key in ((entry.signature, "signature"), (entry.constants, "constants")):
        unknown = set(given) - set(arguments)
        if unknown:
            raise CaseError(
                f"{entry.name}: {key} names {', '.join(sorted(unknown))}, no argument of the kernel"
            )
    both = set(entry.signature) & set(entry.constants)
    if both:
        raise CaseError(f"{entry.name}: {', '.join(sorted(both))} in both signature and constants")
    missing = [name for name in arguments if name not in entry.signature and name not in entry.constants]
    if missing:
        raise CaseError(f"{entry.name}: neither signature nor constants give {', '.join(missing)}")
    types, divisible = {}, []
    for index, name in enumerate(arguments):
        kind = entry.signature.get(name, "constexpr")
        if kind.endswith(_DIVISIBLE):
            kind = kind.removesuffix(_DIVISIBLE)
            divisible.append(index)
        types[name] = kind
    return _Signature(types, tuple(divisible))


def _tool(option: str, cubin: Path) -> str:
    """Output of the cuobjdump that Triton brings along."""
    import triton

    program = str(triton.knobs.nvidia.cuobjdump.path)
    try:
        done = subprocess.run(
            [program, option, str(cubin)], capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        detail = str(getattr(error, "stderr", "") or error).strip()
        raise CaseError(f"cuobjdump {option} failed: {detail}") from error
    return done.stdout


@dataclass(frozen=True)
class _Resources:
    registers: int
    stack_bytes: int
    shared_bytes: int

    def __iter__(self) -> Any:
        return iter((self.registers, self.stack_bytes, self.shared_bytes))


def _resources(usage: str, name: str) -> _Resources:
    found = re.search(r"REG:(\d+)\s+STACK:(\d+)\s+SHARED:(\d+)", usage)
    if found is None:
        raise CaseError(f"{name}: cuobjdump reported no resource usage")
    return _Resources(*(int(number) for number in found.groups()))


def _threads(ptx: str, num_warps: int) -> int:
    """Threads a block; warps that the compiler adds for specialised work are in the PTX, not in the option."""
    found = re.search(r"\.(?:reqntid|maxntid)\s+(\d+)", ptx)
    return int(found[1]) if found else num_warps * _WARP


def _digest(code: str, *resources: int) -> str:
    import hashlib

    return hashlib.sha256(":".join([code, *map(str, resources)]).encode()).hexdigest()


def _compiler(capability: int) -> dict[str, str]:
    import triton
    from triton.backends.nvidia.compiler import get_ptxas

    return {"triton": str(triton.__version__), "ptxas": str(get_ptxas(capability).version)}
