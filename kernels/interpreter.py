"""Triton's interpreter (up to 3.9 at least) stores bfloat16 as 16-bit integers and multiplies matrices of them as
such: without an error, the result is noise. Kernels that run interpreted need this mended first."""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.runtime import interpreter


def mend_bfloat16_products() -> None:
    """Make interpreted tl.dot widen bfloat16 operands to float32, which is exact."""
    builder: Any = interpreter.InterpreterBuilder
    original = builder.create_dot

    def create_dot(
        self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any
    ) -> Any:
        def widened(operand: Any) -> Any:
            if operand.dtype.scalar != tl.bfloat16:
                return operand
            shape = operand.data.shape
            return self.cast_impl(operand, tl.block_type(tl.float32, list(shape)))

        return original(self, widened(a), widened(b), d, input_precision, max_num_imprecise_acc)

    builder.create_dot = create_dot
