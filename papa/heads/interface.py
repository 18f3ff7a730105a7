"""Attention of a model that the user holds, passed through rules while a block runs.

transformers looks an attention function and a mask function up by the name in a model's
configuration. Inside a block that name is ours, and nothing else of the model changes.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from textwrap import dedent
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from papa.errors import DataError, EncoderError, joined
from papa.heads.masks import INPUTS, check_rows, lost_tokens, real_tokens
from papa.models.dispatch import PADDED, Dispatch, is_served
from papa.models.layer import PassTexts, Rule
from papa.models.supported import family_of

_REPLACEABLE = ("eager", "sdpa", "flex_attention", "flash_attention", "papa", "paged")
"""Attention functions whose results rules give."""


class AttentionLayers(NamedTuple):
    """The attention module of each layer that has one, first layer first, a shared one as often as
    used; the model's number of each; and how many layers the model has.
    """

    modules: list[nn.Module]
    numbers: list[int]
    layer_count: int


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """The attention module of each layer that has one."""
    return attention_layers(model).modules


def attention_layers(model: nn.Module) -> AttentionLayers:
    """Where a model's self-attention lies; EncoderError where rules cannot serve it."""
    if hasattr(model, "_orig_mod"):
        raise EncoderError(
            "the model is compiled by torch.compile: give the model before it, model._orig_mod"
        )
    if not isinstance(model, PreTrainedModel):
        raise EncoderError(
            f"expected a model of transformers, found a {type(model).__name__}: give the one inside"
        )
    config: Any = model.config
    family = family_of(config.model_type)
    if family is not None:
        if why := family.refuse(config):
            raise EncoderError(f"this {family.name} model is not supported: {why}")
        modules = family.modules(model.base_model, family.attention)
        return AttentionLayers(modules, [*range(len(modules))], len(modules))
    by_path = {
        path: module
        for path, module in model.named_modules()
        if "ALL_ATTENTION_FUNCTIONS" in inspect.unwrap(type(module).forward).__code__.co_names
        and not _is_cross_attention(model, path)
    }
    found, reason = [*by_path.values()], ""
    kinds = sorted({type(module).__name__ for module in found})
    if not found:
        reason = (
            f"({config.model_type}) computes attention outside of transformers' attention "
            "interface, so its heads cannot be replaced in place: load it with papa.load_encoder "
            "where it is supported"
        )
    elif config.is_encoder_decoder and {"encoder", "decoder"} <= model.base_model._modules.keys():
        reason = "has an encoder and a decoder: give one of them, such as model.get_encoder()"
    elif len(kinds) > 1 or len({id(getattr(module, "config", None)) for module in found}) > 1:
        reason = f"has several kinds of attention ({', '.join(kinds)}): give one of its parts"
    elif lost := sorted({name for module in found for name in _lost_arguments(module)}):
        reason = (
            f"gives its attention {joined(lost)} besides queries, keys and values, which would be "
            "lost: its heads cannot be replaced"
        )
    if reason:
        raise EncoderError(f"{type(model).__name__} {reason}")
    return AttentionLayers(found, *_numbers(model, [*by_path]))


def _numbers(model: nn.Module, paths: Sequence[str]) -> tuple[list[int], int]:
    """The model's numbers of layers, where each has one attention at most; else in their order."""
    places = [_layer_of(path) for path in paths]
    lists = {place and place.before for place in places}
    numbers = [place.number for place in places if place]
    (before,) = lists if len(lists) == 1 else (None,)
    if before is None or len({*numbers}) < len(paths):
        return [*range(len(paths))], len(paths)
    return numbers, len(model.get_submodule(before)._modules)


class _Place(NamedTuple):
    """Where a module lies: its layer's list and number there, and the layer's attribute."""

    before: str
    number: int
    attribute: str


def _layer_of(path: str) -> _Place | None:
    found = re.fullmatch(r"(.*?)\.(\d+)\.([^.]+).*", f".{path}")
    return found and _Place(found[1].removeprefix("."), int(found[2]), found[3])


def _is_cross_attention(model: nn.Module, path: str) -> bool:
    """Whether its layer gives it an encoder's states, without which nothing calls it."""
    if (place := _layer_of(path)) is None:
        return False
    layer = model.get_submodule(f"{place.before}.{place.number}".removeprefix("."))
    kind: Any = type(layer)
    return place.attribute in _given_an_encoder(kind)


@lru_cache
def _given_an_encoder(kind: Any) -> frozenset[str]:
    """The attributes of a layer that its forward method calls with an encoder's states."""
    return frozenset(
        called.removeprefix("self.")
        for call in _forward_of(kind)
        if isinstance(call, ast.Call) and (called := ast.unparse(call.func)).startswith("self.")
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
        if ast.unparse(argument) == "encoder_hidden_states"
    )


@lru_cache
def _forward_of(kind: Any) -> list[ast.AST]:
    """The nodes of a module's forward method; none where its source is not at hand."""
    try:
        return [*ast.walk(ast.parse(dedent(inspect.getsource(inspect.unwrap(kind.forward)))))]
    except (OSError, SyntaxError):
        return []


def _lost_arguments(module: nn.Module) -> list[str]:
    """What a module always gives its attention function and rules do not keep, such as the sinks of
    gpt-oss; what it may leave at None is looked at in the forward pass.
    """
    kind: Any = type(module)
    return [
        name
        for name, attribute in _other_arguments(kind)
        if attribute is None or getattr(module, attribute, None) is not None
    ]


@lru_cache
def _other_arguments(kind: Any) -> list[tuple[str, str | None]]:
    """Name and, where the value is one, attribute of the module."""
    nodes = _forward_of(kind)
    nothing = (node for node in nodes if isinstance(node, ast.Assign))
    unset = [ast.unparse(node.targets[0]) for node in nothing if ast.unparse(node.value) == "None"]
    calls = (node for node in nodes if isinstance(node, ast.Call))
    given = [
        (argument.arg, ast.unparse(argument.value))
        for call in calls
        if ast.unparse(call.func) == "attention_interface"
        for argument in call.keywords
    ]
    return [
        (name, attribute[1] if (attribute := re.fullmatch(r"self\.(\w+)", value)) else None)
        for name, value in given
        if name is not None and value not in unset and not is_served(name)
    ]


def head_count(module: nn.Module) -> int:
    """How many heads an attention module has, counted by query."""
    config: Any = getattr(module, "config", None)
    for name in ("num_heads", "num_attention_heads", "n_heads"):
        for holder in (module, config):
            if isinstance(found := getattr(holder, name, None), int):
                return found
    raise EncoderError(f"{type(module).__name__} does not say how many heads it has")


@contextmanager
def routed(
    model: PreTrainedModel, modules: Sequence[nn.Module], rules: Mapping[int, Rule]
) -> Iterator[Dispatch]:
    """Inside the block layers follow ``rules``, of what a block around it leaves."""
    held = [found for one in modules if (found := getattr(one, "papa_dispatch", None))]
    if held:
        if len(held) < len(modules) or list(held[0].modules) != list(modules):
            raise EncoderError(
                "papa.ablated holds other layers of the model already: give the same model to "
                "both blocks"
            )
        with held[0].ruled(rules):
            yield held[0]
        return
    parts: list[Any] = list(model.modules())
    if model.training and any(getattr(part, "gradient_checkpointing", False) for part in parts):
        raise EncoderError(
            "the model checkpoints gradients: it would repeat passes after the block, with its "
            "own attention; switch that off first"
        )
    dispatch = Dispatch(list(modules), head_count(modules[0]))
    with ExitStack() as after:
        for module in dict.fromkeys(modules):
            module.papa_dispatch = dispatch  # type: ignore[assignment]
            after.callback(delattr, module, "papa_dispatch")
        for part in parts:
            if isinstance(part, PreTrainedModel):
                after.callback(_begins_pass(part, model, dispatch).remove)
        before = [(part, dict(vars(part))) for part in parts]
        family = family_of(model.config.model_type)
        if family is not None and family.prepare is not None:
            family.prepare(model.base_model, dispatch)
        for part, own in before:
            for name in [name for name, now in vars(part).items() if own.get(name) is not now]:
                if name in own:
                    after.callback(vars(part).update, {name: own[name]})
                else:
                    after.callback(vars(part).pop, name)
        # Those that the model's modules look their attention function up in.
        configurations: list[Any] = [getattr(part, "config", None) for part in parts]
        for config in {id(one): one for one in configurations}.values():
            if not isinstance(config, PreTrainedConfig):
                continue
            named: Any = config._attn_implementation_internal
            if named is not None and not named.startswith(_REPLACEABLE):
                raise EncoderError(
                    f"the model's attention function is '{named}', which its other heads would "
                    "lose: call model.set_attn_implementation('eager') first"
                )
            after.callback(setattr, config, "_attn_implementation_internal", named)
            config._attn_implementation_internal = PADDED
        with dispatch.ruled(rules):
            yield dispatch
        if dispatch.reached is False:
            raise EncoderError(
                "no attention of the model passed through transformers' interface, so no head was "
                "replaced: something else has exchanged the forward methods of its layers"
            )


def _begins_pass(part: Any, model: PreTrainedModel, dispatch: Dispatch) -> Any:
    signature = inspect.signature(part.forward)

    @torch.compiler.disable
    def begin(_: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        given = signature.bind_partial(*arguments, **options).arguments
        given |= given.get("kwargs", {})
        asked, config = given.get("output_attentions"), part.config
        asked = config.output_attentions if asked is None else asked
        # What a model is asked, one inside it may not be told.
        dispatch.matrices = bool(asked) or (dispatch.matrices and part is not model)
        dispatch.seen_real = real = real_tokens(given.get("attention_mask"))
        dispatch.before = lost_tokens(given, real)
        check_rows(given.get("attention_mask"), real)
        positions = given.get("position_ids")
        if isinstance(positions, Tensor) and positions.dim() == 2:
            again = positions[:, 1:] <= positions[:, :-1]
            own = None if real is None else real[:, -positions.shape[1] :]
            if own is not None and own.shape == positions.shape:
                again &= own[:, 1:] & own[:, :-1]
            if again.any():
                raise DataError(
                    "position_ids start again inside a row: give each text a row of its own, "
                    "padded on the right or the left"
                )
        found = (given[name] for name in INPUTS if isinstance(given.get(name), Tensor))
        if (inputs := next(found, None)) is not None:
            has_tokens = real is not None and real.shape == inputs.shape
            dispatch.texts = PassTexts(inputs, real if has_tokens else None)
        dispatch.begin()

    return part.register_forward_pre_hook(begin, with_kwargs=True, prepend=True)
