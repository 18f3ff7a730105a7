"""Attention of a model of transformers, passed through rules while a block runs.

transformers looks an attention function and a mask function up by the name in a model's
configuration. Inside a block that name is ours, and nothing else of the model changes.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedConfig, PreTrainedModel

from papa.errors import DataError, EncoderError
from papa.heads.attention_layers import head_count
from papa.heads.masks import INPUTS, check_rows, lost_tokens, real_tokens
from papa.models.dispatch import PADDED, Dispatch
from papa.models.layer import PassTexts, Rule
from papa.models.supported import family_of

_REPLACEABLE = ("eager", "sdpa", "flex_attention", "flash_attention", "papa", "paged")
"""Attention functions whose results rules give."""


@contextmanager
def routed(
    model: PreTrainedModel, modules: Sequence[nn.Module], rules: Mapping[int, Rule]
) -> Iterator[Dispatch]:
    """Route the attention of ``modules``, those of one part of the model, through ``rules`` by
    their position inside the block. A block inside another adds its rules to the outer ones. Raises
    an EncoderError where another block holds other layers, or the model cannot be routed.
    """
    outer: object = next(
        (module.papa_dispatch for module in modules if hasattr(module, "papa_dispatch")), None
    )
    if isinstance(outer, Dispatch):
        if list(outer.modules) != list(modules):
            raise EncoderError(
                "a block of papa.ablated already replaces heads of other layers of this "
                "model: give the same model to both blocks"
            )
        with outer.ruled(rules):
            yield outer
        return
    submodules = list(model.modules())
    checkpoints = any(getattr(module, "gradient_checkpointing", False) for module in submodules)
    if model.training and checkpoints:
        raise EncoderError(
            "the model uses gradient checkpointing, which repeats passes after the block: "
            "call model.gradient_checkpointing_disable() first"
        )
    dispatch = Dispatch(list(modules), head_count(modules[0]))
    with ExitStack() as after:
        for module in dict.fromkeys(modules):
            module.papa_dispatch = dispatch  # type: ignore[assignment]
            after.callback(delattr, module, "papa_dispatch")
        for submodule in submodules:
            # Other parts are called with inputs of their own, which say nothing of these layers.
            if isinstance(submodule, PreTrainedModel) and not set(modules).isdisjoint(
                submodule.modules()
            ):
                after.callback(_hook_before_pass(submodule, model, dispatch).remove)
        after.enter_context(_family_prepared(model, dispatch))
        after.enter_context(_with_attention_function(submodules))
        with dispatch.ruled(rules):
            yield dispatch
        if dispatch.reached is False:
            raise EncoderError(
                "no attention of the model passed through transformers' interface, so no head was "
                "replaced: something else has exchanged the forward methods of its layers"
            )


@contextmanager
def _family_prepared(model: PreTrainedModel, dispatch: Dispatch) -> Iterator[None]:
    """Replace the forward methods that compute attention by themselves, while the block runs."""
    family = family_of(model.config.model_type)
    if family is None or family.prepare is None:
        yield
        return
    attributes_before = [(module, dict(vars(module))) for module in model.modules()]
    family.prepare(model.base_model, dispatch)
    changed = [
        (module, before, name)
        for module, before in attributes_before
        for name, value in vars(module).items()
        if before.get(name) is not value
    ]
    try:
        yield
    finally:
        for module, before, name in changed:
            if name in before:
                vars(module)[name] = before[name]
            else:
                del vars(module)[name]


@contextmanager
def _with_attention_function(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Name our attention function in the configurations of these modules, while the block runs."""
    configs = {id(config): config for config in (getattr(m, "config", None) for m in modules)}
    names: list[tuple[PreTrainedConfig, str | None]] = [
        (config, config._attn_implementation_internal)
        for config in configs.values()
        if isinstance(config, PreTrainedConfig)
    ]
    for _, name in names:
        if name is not None and not name.startswith(_REPLACEABLE):
            raise EncoderError(
                f"the model's attention function is '{name}', which its other heads would "
                "lose: call model.set_attn_implementation('eager') first"
            )
    try:
        for config, _ in names:
            config._attn_implementation_internal = PADDED
        yield
    finally:
        for config, name in names:
            config._attn_implementation_internal = name


def _hook_before_pass(
    module: PreTrainedModel, model: PreTrainedModel, dispatch: Dispatch
) -> RemovableHandle:
    """Pass the inputs of each pass of a model inside ``model`` to the dispatch before it."""
    signature = inspect.signature(module.forward)

    @torch.compiler.disable
    def begin(_: nn.Module, positional: tuple[object, ...], keywords: dict[str, object]) -> None:
        inputs = signature.bind_partial(*positional, **keywords).arguments
        inputs |= inputs.get("kwargs", {})
        requested = inputs.get("output_attentions")
        if requested is None:
            requested = module.config.output_attentions
        # The outer model may be asked for matrices without passing that on to the one inside.
        inherited = dispatch.returns_matrices and module is not model
        dispatch.returns_matrices = bool(requested) or inherited
        mask = inputs.get("attention_mask")
        real = real_tokens(mask)
        dispatch.seen_real = real
        dispatch.tokens_before = lost_tokens(inputs, real)
        check_rows(mask, real)
        _check_positions(inputs.get("position_ids"), real)
        tensors = [inputs[name] for name in INPUTS if isinstance(inputs.get(name), Tensor)]
        if tensors:
            has_tokens = real is not None and real.shape == tensors[0].shape
            dispatch.texts = PassTexts(tensors[0], real if has_tokens else None)
        dispatch.begin()

    return module.register_forward_pre_hook(begin, with_kwargs=True, prepend=True)


def _check_positions(positions: object, real: Tensor | None) -> None:
    """Raise an error if positions start again inside a row, which then holds more than one text."""
    if not isinstance(positions, Tensor) or positions.dim() != 2:
        return
    restarts = positions[:, 1:] <= positions[:, :-1]
    if real is not None:
        real_here = real[:, -positions.shape[1] :]
        if real_here.shape == positions.shape:
            restarts &= real_here[:, 1:] & real_here[:, :-1]
    if restarts.any():
        raise DataError(
            "position_ids restart inside a row, which packs several texts: give each text "
            "its own row, padded on the right or the left"
        )
