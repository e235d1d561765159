"""The command: load a decoder, warm it up, serve it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import sys
from collections.abc import Sequence

import torch

from .protocol import Decoder, FactoryError, load
from .scheduler import Limits
from .server import Engine, serve

DEFAULT_MODEL = f"{__package__}.model:factory"
MEMORY_LIMIT_VARIABLE = "PERFDB_MEMORY_LIMIT_BYTES"
SWITCH_INTERVAL_S = 0.0005


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 2 for a model or device that is not there; other errors end with their traceback."""
    parser = argparse.ArgumentParser(prog="engine", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--model", default=DEFAULT_MODEL, help="module:factory, imported from the working folder"
    )
    parser.add_argument("--name", default="engine", help="the model's name in the API")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="torch threads on the CPU")
    parser.add_argument("--max-running", type=int, default=Limits.running)
    parser.add_argument("--max-waiting", type=int, default=Limits.waiting)
    parser.add_argument(
        "--prefill-tokens", type=int, default=Limits.prefill_tokens, help="prompt tokens a step"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    # The model's thread holds the interpreter for 5 ms at a time by default, and tokens would wait to be sent.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    torch.set_num_threads(options.threads)
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if device == "cuda":
            _limit_device_memory()
        decoder = load(options.model, seed=options.seed, device=device)
    except (FactoryError, ModuleNotFoundError) as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    _warm_up(decoder)
    logging.info("%s on %s, port %d", options.model, device, options.port)
    limits = Limits(options.max_running, options.max_waiting, options.prefill_tokens)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(decoder, limits, options.name, options.host, options.port))
    return 0


async def _serve(decoder: Decoder, limits: Limits, name: str, host: str, port: int) -> None:
    await serve(Engine(decoder, limits), model=name, host=host, port=port)


def _limit_device_memory() -> None:
    """The memory limit that whoever started us set, as a share of the device: an rlimit sees host memory only."""
    limit = os.environ.get(MEMORY_LIMIT_VARIABLE)
    if limit is not None:
        share = int(limit) / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(share, 1.0))


@torch.inference_mode()
def _warm_up(decoder: Decoder) -> None:
    """The first calls pay for lazy initialisation; pay before anyone is told that we are ready."""
    for _ in range(2):
        first, _ = decoder.prefill([0] * 8)
        second, _ = decoder.prefill([0] * 4)
        decoder.decode([first, second], [0, 0])
    # What lives now lives on: keep it out of the collector's passes, which would show as latency.
    gc.collect()
    gc.freeze()
