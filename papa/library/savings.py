"""What constant heads save of a decoder's cache of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import nn

from papa.ablation.interface import attention_modules, head_count
from papa.errors import EncoderError, SpecError
from papa.library.ablating import Heads, heads_by_layer


@dataclass(frozen=True)
class CacheSavings:
    """Groups of heads that share keys and values, a head by itself where none do; both from 0.

    Attributes:
        groups: of all layers.
        constant: (layer, group) whose heads are all constant: they need no keys.
        partly: (layer, group) of which some heads are constant; nothing of them is saved.
        window: as given.
    """

    groups: int
    constant: Sequence[tuple[int, int]]
    partly: Sequence[tuple[int, int]]
    window: int | None

    def share(self, tokens: int) -> float:
        """Of the cache of a text of this many tokens, the share that is not needed, 0..1."""
        values = 0 if self.window is None else max(0, tokens - self.window) / tokens
        return len(self.constant) / self.groups * (1 + values) / 2

    def __str__(self) -> str:
        found = (
            f"{len(self.constant)} of {self.groups} groups of heads are constant as a whole and "
            f"need no keys: {self.share(1):.0%} of the cache is saved"
        )
        if self.window is not None:
            found += (
                f", {self.share(4096):.0%} in a text of 4,096 tokens with values of the last "
                f"{self.window} alone"
            )
        return f"{found}. {len(self.partly)} groups are constant in part, which saves nothing."


def cache_savings(model: nn.Module, heads: Heads, *, window: int | None = None) -> CacheSavings:
    """What a decoder need not keep where heads are constant: keys always, with a window values
    beyond it.

    Heads that share keys and values save only together: a group of which one head keeps its
    attention keeps its cache. ``papa.ablated`` itself saves nothing; this says what an
    implementation could.

    Examples:
        >>> import papa
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "vocab_size": 50}
        >>> heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
        >>> model = LlamaForCausalLM(LlamaConfig(**sizes, **heads))
        >>> papa.cache_savings(model, {0: [0, 1], 1: [1, 2]})
        CacheSavings(groups=4, constant=((0, 0),), partly=((1, 0), (1, 1)), window=None)

    Args:
        model: a decoder, as for ``papa.ablated``.
        heads: the constant ones, as for ``papa.ablated``; counted by query.
        window: beyond this many last tokens the constants are zero; None where they are not.

    Raises:
        EncoderError: the model keeps no cache.
        SpecError: there is no such head or no such window.
    """
    modules = attention_modules(model)
    if not all(getattr(module, "is_causal", False) for module in modules):
        raise EncoderError(
            f"{type(model).__name__} is no decoder: it keeps no keys and values from token to token"
        )
    if window is not None and window < 1:
        raise SpecError(f"window is {window}, expected 1 token or more")
    sizes = [head_count(module) for module in modules]
    shared = [cast(int, getattr(module, "num_key_value_groups", 1)) for module in modules]
    chosen = {layer: set(own) for layer, own in heads_by_layer(heads, sizes).items()}
    constant, partly = list[tuple[int, int]](), list[tuple[int, int]]()
    for layer, own in sorted(chosen.items()):
        for group in sorted({head // shared[layer] for head in own}):
            whole = own.issuperset(range(group * shared[layer], (group + 1) * shared[layer]))
            (constant if whole else partly).append((layer, group))
    groups = sum(size // each for size, each in zip(sizes, shared, strict=True))
    return CacheSavings(groups, tuple(constant), tuple(partly), window)
