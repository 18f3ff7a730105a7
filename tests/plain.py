"""The plain way, the independent side of equivalence tests and benchmarks: padded inputs, eager
attention, a matrix per input, head and layer, as in the paper's own experiments.

Families behind transformers' attention interface are changed there; in the others (DeBERTa, MPNet)
it is the dropout of attention matrices whose output is changed.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

Change = Callable[[Tensor], Tensor]
"""From attention matrices [batch, heads, S, S] to others."""


def masked_and_normalised(matrices: Tensor, attention_mask: Tensor) -> Tensor:
    """C on each input's real slots, rows divided by their sums: [batch, heads, S, S]."""
    real = attention_mask.to(matrices.dtype)
    masked = matrices[None] * real[:, None, :, None] * real[:, None, None, :]
    return masked / masked.sum(dim=-1, keepdim=True).clamp(min=1e-30)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    **_: object,
) -> tuple[Tensor, Tensor]:
    groups = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
    scores = torch.matmul(query, key.transpose(2, 3)) * (scaling or query.shape[-1] ** -0.5)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = scores.softmax(dim=-1)
    plain = getattr(module, "plain", None)
    if plain is not None:
        probabilities = next(plain)(probabilities)
    return torch.matmul(probabilities, value).transpose(1, 2).contiguous(), probabilities


AttentionInterface.register("plain", _attention)
AttentionMaskInterface.register("plain", eager_mask)


def plain_model(model: Any) -> Any:
    """Make ``model`` compute its attention plainly; it stays a stock model in all else."""
    model.set_attn_implementation("plain" if model._supports_attention_backend else "eager")
    return model


def plain_pass(model: Any, **inputs: Tensor) -> Any:
    """Hidden states and attention matrices of every layer, of ``inputs`` that the model knows."""
    known = inspect.signature(type(model).forward).parameters
    inputs = {name: tensor for name, tensor in inputs.items() if name in known}
    return model(**inputs, output_hidden_states=True, output_attentions=True, return_dict=True)


@contextmanager
def plainly(modules: Sequence[nn.Module], change: Callable[[int], Change]) -> Iterator[None]:
    """Inside the block each layer multiplies ``change(layer)(probabilities)`` with V, in turn."""
    changes: dict[nn.Module, list[Change]] = {}
    for layer, module in enumerate(modules):
        changes.setdefault(module, []).append(change(layer))
    handles = []
    for module, of_module in changes.items():
        module.plain = in_turn = cycle(of_module)  # type: ignore[assignment]
        dropout = getattr(module, "dropout", None)
        if isinstance(dropout, nn.Module):
            # Modules behind the interface never call it; the others do on their matrices.
            def hook(_: Any, __: Any, output: Tensor, in_turn: Any = in_turn) -> Tensor:
                return next(in_turn)(output)

            handles.append(dropout.register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module in changes:
            del module.plain


def with_constants(
    matrices: Tensor, heads: Sequence[tuple[int, int]], attention_mask: Tensor
) -> Callable[[int], Change]:
    """For ``plainly``: overwrite the attention of ``heads`` by masked, normalised constants."""

    def change(layer: int) -> Change:
        constant = [head for layer_of_head, head in heads if layer_of_head == layer]

        def overwrite(probabilities: Tensor) -> Tensor:
            probabilities = probabilities.clone()
            probabilities[:, constant] = masked_and_normalised(
                matrices[layer, constant].to(probabilities.dtype), attention_mask
            )
            return probabilities

        return overwrite

    return change


def with_mix(matrices: Tensor, shares: Tensor, attention_mask: Tensor) -> Callable[[int], Change]:
    def change(layer: int) -> Change:
        def mix(probabilities: Tensor) -> Tensor:
            share = shares[layer][None, :, None, None]
            layer_matrices = matrices[layer].to(probabilities.dtype)
            constant = masked_and_normalised(layer_matrices, attention_mask)
            return share * probabilities + (1 - share) * constant

        return mix

    return change
