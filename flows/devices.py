"""What computes, and how fast it multiplies matrices: measured where it is at hand, else from its data sheet."""

from __future__ import annotations

import time
from dataclasses import dataclass

from papa.spec import Precision

_SIZE = 1024
_SECONDS = 0.3
_DATA_SHEET = {"float32": 19.5, "bfloat16": 312.0, "float16": 312.0}
"""TFLOP/s of an NVIDIA A100 without TF32 and sparsity (data sheet, 2020)."""


@dataclass(frozen=True)
class Device:
    """One worker's share of the machine.

    Attributes:
        name: what it is and where the figure comes from.
        flops: floating point operations a second in a matrix product.
    """

    name: str
    flops: float


def one_core() -> Device:
    """A core of this machine, measured now."""
    return Device("one core, measured now", _measured("cpu", "float32"))


def gpu(precision: Precision, teraflops: float | None) -> Device:
    """A GPU: as stated, else this machine's, measured now, else an A100 by its data sheet."""
    import torch

    if teraflops:
        return Device(f"a GPU at {teraflops:g} TFLOP/s, as stated", teraflops * 1e12)
    if torch.cuda.is_available():
        return Device(f"{torch.cuda.get_device_name()}, measured now", _measured("cuda", precision))
    rate = _DATA_SHEET[precision]
    return Device(f"an A100 at {rate:g} TFLOP/s by its data sheet; --tflops states another GPU", rate * 1e12)


def _measured(device: str, precision: Precision) -> float:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        size = _SIZE * (8 if device == "cuda" else 1)
        left = torch.rand(size, size, device=device, dtype=getattr(torch, precision))
        best, started = float("inf"), time.perf_counter()
        while time.perf_counter() - started < _SECONDS:
            begun = time.perf_counter()
            float((left @ left)[0, 0])
            best = min(best, time.perf_counter() - begun)
    finally:
        torch.set_num_threads(threads)
    return 2 * size**3 / best
