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


def has_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16 and PyTorch's matrix products use that."""
    import torch

    # Two sets of x86's, two of Arm's.
    known: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    sets = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")
    return any(known.get(name) for name in sets) and torch.backends.mkldnn.is_available()


def check_device(device: str | torch.device) -> None:
    """Refuse a device that PyTorch does not have here, or that PAPA does not compute on."""
    import torch

    try:
        asked = torch.device(device)
    except RuntimeError:
        asked = None
    if asked is None or asked.type not in ("cpu", "cuda"):
        raise SpecError(f"PAPA does not compute on the device {str(device)!r}: use cpu or cuda")
    if asked.type == "cuda" and (asked.index or 0) >= torch.cuda.device_count():
        raise SpecError(
            f"device {str(device)!r} needs a GPU, and PyTorch finds {torch.cuda.device_count()} "
            "here: use cpu, or auto in a study, which takes what a machine has"
        )


def check_precision(precision: Precision, device: str) -> None:
    """Refuse a precision that there is not, or that the device does not compute in."""
    import torch

    if precision not in get_args(Precision):
        raise SpecError(
            f"precision is {precision!r}: use {' or '.join(map(repr, get_args(Precision)))}"
        )
    on_cpu = torch.device(device).type == "cpu"
    if precision == "bfloat16" and not (
        has_bfloat16() if on_cpu else torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        raise SpecError(
            "precision: bfloat16 needs a GPU, or a CPU with AMX, AVX512-BF16 or Arm's BF16, that "
            f"multiplies in it, and encoders run on {device} here, which does not: set precision: "
            "float32, or auto, which takes what a machine has"
        )


def chosen_precision(
    asked: Precision | Literal["auto"], encoders: Iterable[str], device: str
) -> Precision:
    """What ``auto`` means for these encoders on the device; other precisions stay."""
    if asked != "auto":
        return asked
    holds = HOLDS_IN_BFLOAT16.issuperset(encoders) and device == "cpu" and has_bfloat16()
    return "bfloat16" if holds else "float32"
