"""Kernels run on the GPU where there is one, and under Triton's interpreter on the CPU elsewhere.

The interpreter is chosen before the first import of triton, once for the whole session.
"""

import os
import sys

import pytest
import torch

if not torch.cuda.is_available() and "triton" not in sys.modules:
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the kernels run; skips where an earlier test imported triton without its interpreter."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    from kernels.common import INTERPRETED

    if not INTERPRETED:
        pytest.skip("triton was imported without TRITON_INTERPRET=1 and there is no GPU")
    return torch.device("cpu")


@pytest.fixture
def generator(device: torch.device) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(1234)
