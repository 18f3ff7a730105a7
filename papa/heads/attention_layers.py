"""The layers of a model that have attention, by the model's own numbers, part by part.

A model has several parts where it has several stacks of layers: an encoder and a decoder, or a
vision model and a text model. A part is chosen by the name that the model itself uses.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from torch import nn
from transformers import PreTrainedModel

from papa.errors import EncoderError, joined
from papa.heads.forward_source import calls_attention_interface, passes_other_states
from papa.models.supported import family_of
from papa.spec.orders import Head

_NOT_SERVED = {
    "blt_global_transformer": "it leaves its causal mask to the attention function",
    "deepseek_v4": "its keys are compressed blocks of tokens, not tokens",
    "hrm_text": "its layers run several times a pass, each time with another attention",
}
"""Model types whose attention passes the interface and breaks a law of replaced heads."""


@dataclass(frozen=True)
class AttentionLayers:
    """The self-attention of one stack of layers.

    Attributes:
        modules: the attention module of each layer that has one, first layer first; a module that
            layers share is listed once for each of them.
        numbers: the model's number of each of those layers.
        layer_count: number of layers of the stack, those without attention included.
        path: where the stack lies in the model, such as "model.vision_tower.encoder.layers".
    """

    modules: list[nn.Module]
    numbers: list[int]
    layer_count: int
    path: str = ""

    @property
    def head_counts(self) -> list[int]:
        """Number of heads of each layer, counted by query; 0 where a layer has no attention."""
        counts = [0] * self.layer_count
        for number, module in zip(self.numbers, self.modules, strict=True):
            counts[number] = head_count(module)
        return counts

    def indexed(self, heads: Iterable[Head]) -> list[Head]:
        """Return heads by the index of their layer among those with attention."""
        return [(self.numbers.index(layer), head) for layer, head in heads]


def attention_layers(model: nn.Module, part: str | None = None) -> AttentionLayers:
    """Return where the self-attention of a model of transformers, or of one of its parts, lies.

    Args:
        part: the model's own name of a part, such as "encoder" or "vision_tower", or what only one
            part's path holds, such as "vision". None where the model has one part.

    Raises:
        EncoderError: rules cannot replace heads of this model, or it has several parts and ``part``
            names none or more than one of them.
    """
    layers_by_part = attention_parts(model)
    layers = layers_by_part[_chosen_part(model, layers_by_part, part)]
    if len({head_count(module) for module in layers.modules}) > 1:
        raise EncoderError(
            f"{type(model).__name__} has layers with different numbers of heads: its heads cannot "
            "be replaced"
        )
    return layers


def attention_parts(model: nn.Module) -> dict[str, AttentionLayers]:
    """Return every stack of layers with self-attention behind the interface, by its name. Raises an
    EncoderError where there is none, or the model is none of transformers.
    """
    if not isinstance(model, PreTrainedModel):
        raise EncoderError(
            f"expected a model of transformers, found {type(model).__name__}: give the model "
            "itself, not a wrapper of it, nor what papa.load_encoder returns"
        )
    config = model.config
    family = family_of(config.model_type)
    if family is not None:
        reason = family.refuse(config)
        if reason:
            raise EncoderError(f"this {family.name} model is not supported: {reason}")
        layers = family.modules(model.base_model, family.attention)
        return {"encoder": AttentionLayers(layers, [*range(len(layers))], len(layers))}
    name = type(model).__name__
    if config.model_type in _NOT_SERVED:
        raise EncoderError(
            f"{name}: {_NOT_SERVED[config.model_type]}: its heads cannot be replaced"
        )
    paths_by_stack: dict[str, list[str]] = {}
    for path, module in model.named_modules():
        if calls_attention_interface(module) and not _is_cross_attention(model, path):
            position = _position_of(path)
            paths_by_stack.setdefault(position.stack if position else path, []).append(path)
    if not paths_by_stack:
        raise EncoderError(
            f"{name} ({config.model_type}) computes attention outside of transformers' attention "
            "interface, so its heads cannot be replaced in place: load it with papa.load_encoder "
            "where it is supported"
        )
    names = _shortest_names([*paths_by_stack])
    return {
        names[stack]: _stack_layers(model, stack, paths) for stack, paths in paths_by_stack.items()
    }


def _stack_layers(model: nn.Module, stack: str, paths: Sequence[str]) -> AttentionLayers:
    """Return one stack's layers by the model's numbers where each has one attention, else in
    order.
    """
    modules = [model.get_submodule(path) for path in paths]
    positions = [_position_of(path) for path in paths]
    numbers = [position.number for position in positions if position is not None]
    if len(set(numbers)) < len(paths):
        return AttentionLayers(modules, [*range(len(paths))], len(paths), stack)
    return AttentionLayers(modules, numbers, len(model.get_submodule(stack)._modules), stack)


class _Position(NamedTuple):
    """The list of layers that a module lies in, its layer's number there, and the path below."""

    stack: str
    number: int
    below: list[str]


def _position_of(path: str) -> _Position | None:
    """Return the position of a module in the outermost list of modules on its path."""
    match = re.fullmatch(r"(?:(.*?)\.)?(\d+)\.(.+)", path)
    return None if match is None else _Position(match[1] or "", int(match[2]), match[3].split("."))


def _is_cross_attention(model: nn.Module, path: str) -> bool:
    """Return whether a layer passes this attention the states of another sequence.

    Looks from the layer down to the attention, for the first module that calls the next on the path
    directly; modules in between that only hold a list are passed over.
    """
    position = _position_of(path)
    if position is None:
        return False
    ancestor = model.get_submodule(f"{position.stack}.{position.number}".removeprefix("."))
    for attribute in position.below:
        passes = passes_other_states(ancestor, attribute)
        if passes is not None:
            return passes
        ancestor = ancestor.get_submodule(attribute)
    return False


def _shortest_names(stacks: Sequence[str]) -> dict[str, str]:
    """Return the shortest name for each path that no other path shares, without what all begin
    with.

    Examples:
        >>> _shortest_names(["model.vision.layers", "model.text.decoder.layers"])
        {'model.vision.layers': 'vision', 'model.text.decoder.layers': 'text'}
    """
    components = {stack: stack.split(".") for stack in stacks}
    beginnings = zip(*components.values(), strict=False)
    equal_beginnings = [*takewhile(lambda names: len(set(names)) == 1, beginnings)]
    shared = len(equal_beginnings) if len(stacks) > 1 else 0
    result: dict[str, str] = {}
    for stack, names in components.items():
        length = shared + 1
        while length < len(names) and any(
            path[:length] == names[:length]
            for other_stack, path in components.items()
            if other_stack != stack
        ):
            length += 1
        result[stack] = ".".join(names[shared:length]) or stack
    return result


def _chosen_part(
    model: nn.Module, layers_by_part: dict[str, AttentionLayers], requested: str | None
) -> str:
    """Return the name of the requested part: by name, or by what only its path or the key of its
    configuration holds, such as "text" for ``text_config``.
    """
    choices = joined(sorted(layers_by_part))
    if requested is None:
        if len(layers_by_part) == 1:
            return next(iter(layers_by_part))
        raise EncoderError(
            f"{type(model).__name__} has {len(layers_by_part)} parts with attention: choose one "
            f"with part=, of {choices}"
        )
    if requested in layers_by_part:
        return requested
    matching: list[str] = []
    for name, layers in layers_by_part.items():
        config = getattr(layers.modules[0], "config", None)
        if requested in f"{layers.path} {getattr(config, 'base_config_key', '')}":
            matching.append(name)
    if len(matching) != 1:
        problem = "no part" if not matching else f"{len(matching)} parts"
        raise EncoderError(
            f"part={requested!r} names {problem} of {type(model).__name__}: choose one of {choices}"
        )
    return matching[0]


def heads_per_kv_group(modules: Sequence[nn.Module]) -> int:
    """Return how many heads of a layer share keys and values; 1 where each has its own. Raises an
    EncoderError where layers differ in it.
    """
    sizes = {_kv_group_size(module) for module in modules}
    if len(sizes) > 1:
        raise EncoderError(
            f"{joined(map(str, sorted(sizes)))} heads share keys and values in different layers of "
            "this model, so groups have no common size: take unit='head'"
        )
    return sizes.pop()


def _kv_group_size(module: nn.Module) -> int:
    size = getattr(module, "num_key_value_groups", None)
    if isinstance(size, int):
        return size
    key_heads = getattr(getattr(module, "config", None), "num_key_value_heads", None)
    return head_count(module) // key_heads if isinstance(key_heads, int) else 1


def head_count(module: nn.Module) -> int:
    """Return how many heads an attention module has, counted by query."""
    config = getattr(module, "config", None)
    for name in ("num_heads", "num_attention_heads", "n_heads"):
        for holder in (module, config):
            count = getattr(holder, name, None)
            if isinstance(count, int):
                return count
    raise EncoderError(f"{type(module).__name__} does not say how many heads it has")
