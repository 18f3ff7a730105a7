"""The linear maps of a frozen encoder's layers on a CPU, in 8-bit integers: dynamic quantisation.

Weights are rounded once, with a scale for each row; inputs at every call, with one scale for all
tokens of the batch, so that a text's numbers depend a little on the texts beside it. Sums are
integers, what comes out is float32. Nothing is trained or calibrated.
"""

from __future__ import annotations

import warnings

import torch
from jaxtyping import Float
from torch import Tensor, nn

_LARGEST = 127
"""The largest weight of a row."""


class Int8Linear:
    """x Wᵀ + b with W and x in 8 bits, of a float32 map on a CPU, which stays as it is; no
    gradients.
    """

    def __init__(self, linear: nn.Linear) -> None:
        weight = linear.weight.detach()
        tiny = torch.finfo(torch.float32).tiny  # A row of zeros has a scale, too.
        scales = (weight.abs().amax(dim=1) / _LARGEST).clamp_min(tiny)
        with warnings.catch_warnings():
            # Tensors of this kind are to leave PyTorch; it has no other way to pack weights.
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            rounded = torch.quantize_per_channel(
                weight, scales.double(), torch.zeros(len(weight)).long(), 0, torch.qint8
            )
        self._packed = torch.ops.quantized.linear_prepack(rounded, linear.bias)
        self._seven_bits = not _multiplies_in_int8()

    def __call__(self, x: Float[Tensor, "... inputs"]) -> Float[Tensor, "... outputs"]:
        """The map of x in float32."""
        found: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, self._seven_bits)
        return found


def _multiplies_in_int8() -> bool:
    """Whether this CPU sums products of 8 bits in 32: without VNNI x86 sums them in 16, where two
    may overflow unless inputs have 7 bits.
    """
    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))
