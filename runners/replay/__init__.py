"""The replay tier: a recorded request trace, sent open-loop to a server, and what its users would have felt.

`readers` -> `transforms` -> `summary` make the workload; `server` starts what is measured; `client` sends and
records; `metrics` defines every figure; `case` ties them together.
"""

from .case import run_case

__all__ = ["run_case"]
