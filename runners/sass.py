"""What the machine code of a GPU kernel holds, read from the listing of `cuobjdump -sass`."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass

# "/*0010*/  @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;  /* 0x... */": the opcode with its modifiers.
_INSTRUCTION = re.compile(
    r"/\*[0-9a-f]{4,6}\*/\s+(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)"
)
_WIDTH = re.compile(r"\.(32|64|128|256)(?:\.|$)")
_PADDING = "NOP"

# Opcode -> class. Names: "CUDA Binary Utilities", section "Instruction Set Reference".
_CLASSES: dict[str, frozenset[str]] = {
    "matrix": frozenset(
        {
            "HMMA",
            "IMMA",
            "BMMA",
            "DMMA",
            "QMMA",
            "HGMMA",
            "IGMMA",
            "BGMMA",
            "QGMMA",
            "OMMA",
            "UTCHMMA",
            "UTCIMMA",
            "UTCQMMA",
            "UTCOMMA",
            "UTCMMA",
        }
    ),
    "global_load": frozenset({"LDG", "LD"}),
    "global_store": frozenset({"STG", "ST", "RED", "REDG", "ATOM", "ATOMG"}),
    "bulk_copy": frozenset(
        {
            "LDGSTS",
            "UTMALDG",
            "UTMASTG",
            "UTMAREDG",
            "UBLKCP",
            "UBLKRED",
            "UTMAPF",
            "UBLKPF",
        }
    ),
    "shared": frozenset(
        {
            "LDS",
            "STS",
            "LDSM",
            "STSM",
            "ATOMS",
            "LDGDEPBAR",
            "UTCCP",
            "LDTM",
            "STTM",
        }
    ),
    "local": frozenset({"LDL", "STL"}),
    "special_function": frozenset({"MUFU"}),
    "barrier": frozenset(
        {
            "BAR",
            "SYNCS",
            "DEPBAR",
            "MEMBAR",
            "WARPSYNC",
            "WARPGROUP",
            "ERRBAR",
            "FENCE",
            "UCGABAR_ARV",
            "UCGABAR_WAIT",
        }
    ),
    "float": frozenset(
        {
            "FADD",
            "FFMA",
            "FMUL",
            "FMNMX",
            "FMNMX3",
            "FSEL",
            "FSET",
            "FSETP",
            "FCHK",
            "FSWZADD",
            "HADD2",
            "HFMA2",
            "HMUL2",
            "HMNMX2",
            "HSET2",
            "HSETP2",
            "DADD",
            "DFMA",
            "DMUL",
            "DSETP",
            "FADD2",
            "FFMA2",
            "FMUL2",
        }
    ),
    "conversion": frozenset(
        {
            "F2F",
            "F2FP",
            "F2I",
            "F2IP",
            "I2F",
            "I2FP",
            "I2I",
            "I2IP",
            "FRND",
        }
    ),
    "control": frozenset(
        {
            "BRA",
            "BRX",
            "BRXU",
            "JMP",
            "EXIT",
            "CALL",
            "RET",
            "BSSY",
            "BSYNC",
            "BREAK",
            "KILL",
            "NANOSLEEP",
            "YIELD",
            "RPCMOV",
            "WARPEXIT",
        }
    ),
}
_CLASS_OF = {opcode: name for name, opcodes in _CLASSES.items() for opcode in opcodes}
OTHER = "other"
"""Integer, address, predicate and move instructions."""


@dataclass(frozen=True)
class MachineCode:
    """instructions: without padding. mix: instructions per class, every class named. opcodes: the same by opcode.

    spill_*_bytes: static bytes of local-memory stores and loads; Triton kernels keep nothing else there.
    widest_global_access_bytes: per thread, over global loads and stores (0 when there are none).
    digest: sha256 over the encoded instructions, so that neither a path nor a line number changes it.
    """

    instructions: int
    mix: dict[str, int]
    opcodes: dict[str, int]
    spill_store_bytes: int
    spill_load_bytes: int
    widest_global_access_bytes: int
    digest: str

    @property
    def matrix_instructions(self) -> int:
        return self.mix["matrix"]


def read_machine_code(listing: str) -> MachineCode:
    """The listing of one kernel. Raises ValueError when it holds no instruction."""
    opcodes: Counter[str] = Counter()
    spills: Counter[str] = Counter()
    widest = 0
    digest = hashlib.sha256()
    for line in listing.splitlines():
        found = _INSTRUCTION.search(line)
        encoding = line.rpartition("/* 0x")[2].partition(" ")[0]
        if encoding and (found is None or found[1] != _PADDING):
            digest.update(encoding.encode())
        if found is None or found[1] == _PADDING:
            continue
        opcode, modifiers = found[1], found[2]
        opcodes[opcode] += 1
        if opcode in ("STL", "LDL"):
            spills[opcode] += _bytes(modifiers)
        elif _CLASS_OF.get(opcode) in ("global_load", "global_store"):
            widest = max(widest, _bytes(modifiers))
    if not opcodes:
        raise ValueError("the disassembly holds no instruction")
    mix = dict.fromkeys((*_CLASSES, OTHER), 0)
    for opcode, count in opcodes.items():
        mix[_CLASS_OF.get(opcode, OTHER)] += count
    return MachineCode(
        instructions=opcodes.total(),
        mix=mix,
        opcodes=dict(sorted(opcodes.items())),
        spill_store_bytes=spills["STL"],
        spill_load_bytes=spills["LDL"],
        widest_global_access_bytes=widest,
        digest=digest.hexdigest(),
    )


def _bytes(modifiers: str) -> int:
    if width := _WIDTH.search(modifiers):
        return int(width[1]) // 8
    if ".U8" in modifiers or ".S8" in modifiers:
        return 1
    return 2 if ".U16" in modifiers or ".S16" in modifiers else 4
