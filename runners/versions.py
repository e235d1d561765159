"""What the project's interpreter would load, read from package metadata: torch is never imported for it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

_DISTRIBUTIONS = {"torch": "torch", "triton": "triton", "numpy": "numpy"}
_BY_PREFIX = {"cudnn": "nvidia-cudnn-cu", "nccl": "nvidia-nccl-cu"}
_MAJORS = ("13", "12", "11")


def collect() -> dict[str, str | None]:
    """Versions of python, libc, torch, its CUDA, triton, numpy, cuDNN and NCCL; None where absent."""
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "libc": "-".join(platform.libc_ver()) or None,
    }
    for key, name in _DISTRIBUTIONS.items():
        found[key] = _version(name)
    for key, prefix in _BY_PREFIX.items():
        found[key] = next(filter(None, (_version(prefix + major) for major in _MAJORS)), None)
    found["cuda"] = _torch_cuda()
    return found


def _version(distribution: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(distribution)
    return None


def _torch_cuda() -> str | None:
    """`torch.version.cuda`, read out of torch/version.py without importing torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return None
    match = re.search(r"^cuda\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match[1] if match else None


def main(arguments: list[str]) -> int:
    """Print `collect()` as JSON; called through bootstrap.py under the project's interpreter."""
    assert not arguments
    json.dump(collect(), sys.stdout)
    return 0
