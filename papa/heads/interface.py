"""Attention of a model that the user holds, passed through rules while a block runs.

transformers looks an attention function and a mask function up by the name in a model's
configuration. Inside a block that name is ours, and nothing else of the model changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from papa.errors import DataError, EncoderError
from papa.models.dispatch import PADDED, Dispatch
from papa.models.layer import Rule
from papa.models.supported import family_of

_REPLACEABLE = ("eager", "sdpa", "flex_attention", "flash_attention", "papa", "paged")
"""Attention functions whose results rules give."""


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """The attention module of each layer, first layer first; a shared one as often as used."""
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
        return family.modules(model.base_model, family.attention)
    codes = ((one, inspect.unwrap(type(one).forward).__code__) for one in model.modules())
    found, reason = [one for one, code in codes if "ALL_ATTENTION_FUNCTIONS" in code.co_names], ""
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
    if reason:
        raise EncoderError(f"{type(model).__name__} {reason}")
    return found


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


_INPUTS = ("input_ids", "pixel_values", "input_values", "input_features", "inputs_embeds")


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
        dispatch.seen_real = real = _real_tokens(given.get("attention_mask"))
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
        found = (given[name] for name in _INPUTS if isinstance(given.get(name), Tensor))
        if (inputs := next(found, None)) is not None:
            rows: Any = inputs
            if real is not None and real.shape == inputs.shape:
                rows = [row[own] for row, own in zip(inputs, real, strict=True)]
            held = (row.detach().cpu().contiguous().view(torch.uint8).numpy() for row in rows)
            dispatch.texts = tuple(sha256(row).digest() for row in held)
        dispatch.begin()

    return part.register_forward_pre_hook(begin, with_kwargs=True, prepend=True)


def _real_tokens(mask: Any) -> Bool[Tensor, "batch seen"] | None:
    """Which tokens are real, up to the last of the pass: from a mask of tokens, or of queries and
    keys, where a key is real that a later query sees, and the last one is.
    """
    if isinstance(mask, Mapping):
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    if not isinstance(mask, Tensor) or mask.dim() not in (2, 4):
        return None
    if mask.dim() == 2:
        return mask.bool()
    allowed = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    allowed, places = allowed[:, 0], torch.arange(mask.shape[-1], device=mask.device)
    own = (allowed * places).amax(dim=-1)
    seen = int(own[:, -1].max()) + 1
    # Rows of padding may see all.
    whole = allowed.all(dim=-1, keepdim=True)
    whole[:, -1] = False
    real = (allowed & ~whole & (places < own[..., None])).any(dim=1)
    return (real | (places == own[:, -1:]) & allowed[:, -1])[:, :seen]
