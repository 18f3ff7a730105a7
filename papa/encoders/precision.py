"""In which precision an encoder computes: what a device can do, and what ``auto`` takes."""

from __future__ import annotations

from papa.encoders.reference import EMBEDDED
from papa.errors import SpecError
from papa.spec import Precision, PrecisionChoice

HOLDS_IN_BFLOAT16 = frozenset({EMBEDDED})
"""Encoders whose scores hold in bfloat16 on a CPU, as ``python -m benchmarks.precision`` measured them."""

_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")
"""What PyTorch calls the instructions that multiply in bfloat16: two of x86's, two of Arm's."""


def has_bfloat16() -> bool:
    """Whether this machine's CPU multiplies in bfloat16 and PyTorch's library of matrix products uses that."""
    import torch

    if not torch.backends.mkldnn.is_available() or not hasattr(torch.cpu, "get_capabilities"):
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in _INSTRUCTIONS)


def check_precision(precision: Precision, device: str) -> None:
    """Refuse a precision that the device does not compute in.

    Raises:
        SpecError: float16 on a CPU, or bfloat16 on a CPU without instructions for it.
    """
    if precision == "float32" or device != "cpu" or (precision == "bfloat16" and has_bfloat16()):
        return
    if precision == "float16":
        raise SpecError(
            "precision: float16 needs a GPU and encoders run on the CPU here: set precision: bfloat16 or float32"
        )
    raise SpecError(
        "precision: bfloat16 needs a GPU, or a CPU with AMX, AVX512-BF16 or Arm's BF16, and encoders run on the CPU "
        "here, which has none of them: set precision: float32, or auto, which takes what a machine has"
    )


def chosen_precision(asked: PrecisionChoice, encoder: str, device: str) -> Precision:
    """What ``auto`` means for the encoder of that name on the device; any other precision is itself."""
    if asked != "auto":
        return asked
    return "bfloat16" if encoder in HOLDS_IN_BFLOAT16 and device == "cpu" and has_bfloat16() else "float32"
