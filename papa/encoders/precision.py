"""In which precision an encoder computes: what a device can do, and what ``auto`` takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, get_args

from papa.encoders.reference import EMBEDDED
from papa.errors import SpecError
from papa.spec import Precision

if TYPE_CHECKING:
    import torch

HOLDS_IN_BFLOAT16 = frozenset({EMBEDDED})
"""Encoders whose scores hold in bfloat16 on a CPU, by ``python -m benchmarks.precision``."""


def cpu_has(*instructions: str) -> bool:
    """Whether this CPU has any of these instructions, in PyTorch's words."""
    import torch

    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in instructions)


def has_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16 and PyTorch's matrix products use that."""
    import torch

    # Two sets of x86's, two of Arm's.
    multiplies = cpu_has("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")
    return multiplies and torch.backends.mkldnn.is_available()


def check_device(device: str | torch.device) -> None:
    """Refuse a device that PyTorch does not have here."""
    import torch

    try:
        kind, number = torch.device(device).type, torch.device(device).index or 0
    except RuntimeError:
        raise SpecError(f"there is no device {str(device)!r}: use cpu or cuda") from None
    if kind == "cuda" and number >= torch.cuda.device_count():
        raise SpecError(
            f"device {str(device)!r} needs a GPU, and PyTorch finds {torch.cuda.device_count()} "
            "here: use cpu, or auto in a study, which takes what a machine has"
        )


def check_precision(precision: Precision, device: str) -> None:
    """Refuse a precision that there is not, or that the device does not compute in."""
    if precision not in get_args(Precision):
        raise SpecError(
            f"precision is {precision!r}: use {' or '.join(map(repr, get_args(Precision)))}"
        )
    if precision == "bfloat16" and device == "cpu" and not has_bfloat16():
        raise SpecError(
            "precision: bfloat16 needs a GPU, or a CPU with AMX, AVX512-BF16 or Arm's BF16, and "
            "encoders run on the CPU here, which has none of them: set precision: float32, or "
            "auto, which takes what a machine has"
        )


def chosen_precision(
    asked: Precision | Literal["auto"], encoders: Iterable[str], device: str
) -> Precision:
    """What ``auto`` means for these encoders on the device; other precisions stay."""
    if asked != "auto":
        return asked
    holds = HOLDS_IN_BFLOAT16.issuperset(encoders) and device == "cpu" and has_bfloat16()
    return "bfloat16" if holds else "float32"
