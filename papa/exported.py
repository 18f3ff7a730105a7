"""An encoder with constant heads as an ordinary model of ``transformers``: what an export loads as.

Its query and key maps are those of the heads that are not constant. Constant heads mix in columns,
one for each slot that a batch uses, so that their matrices are read once for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import cached_file

from papa.errors import ArtifactError, DataError, EncoderError
from papa.files import sha256_of_file
from papa.heads.constants import constant_product
from papa.models.dispatch import Attend, ScoreBias
from papa.models.supported import Family, family_of

TYPE = "papa_constant_heads"
CLASS_SETTINGS = ("id2label", "label2id", "problem_type")
"""Settings of the original that say what its task head answers."""


class ConstantHeadsConfig(PreTrainedConfig):
    """The original's ``base``; the constant ``heads`` of each layer; S ``slots`` for one text, or
    two with ``separators`` between; ``placement`` of tokens in them, those of the "layout", or
    "positions" of tokens, of which "ends" puts the last token in the last slot; ``positions`` that
    the original counts, "slots" or "tokens"; ``digests``, SHA-256 of the files of weights; and what
    was measured, ``study``.
    """

    model_type = TYPE

    def __init__(self, **settings: Any) -> None:
        unset = {"base": {}, "heads": [], "slots": 0, "separators": 0, "placement": "layout"}
        super().__init__(**{**unset, "positions": "tokens", "digests": {}, "study": {}, **settings})


class _Tokens(NamedTuple):
    """Where the tokens of one pass stand.

    Attributes:
        columns: the slot of each column.
        column_ids: [batch, tokens], the column of each token; of padding one after the last.
        is_filled: [batch, columns], where an input has a token.
        real: [batch, tokens], which tokens are no padding.
        positions: [batch, tokens], what windows and relative positions count.
        calls: how many layers have attended, by the first of those that share a module.
    """

    columns: Tensor
    column_ids: Tensor
    is_filled: Tensor
    real: Tensor
    positions: Tensor
    calls: dict[int, int]


_CURRENT_TOKENS: ContextVar[_Tokens] = ContextVar("current_tokens")
"""Those of the pass that runs in this thread."""


class _CurrentPass:
    """The pass of a model whose layers are handed no options; an ``AttentionPass``."""

    reads_masks = False

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def attention_function(self) -> Attend:
        return partial(_attention, papa=_CURRENT_TOKENS.get())

    def distances(self, tokens: Tensor) -> Tensor:
        positions = _CURRENT_TOKENS.get().positions
        return positions[:, :, None] - positions[:, None, :]

    def over_slots(self, convolve: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
        tokens = _CURRENT_TOKENS.get()
        positions = tokens.positions.where(tokens.real, self.slots)
        positions = positions[:, None].expand_as(states)
        spread = states.new_zeros(*states.shape[:2], self.slots + 1).scatter(2, positions, states)
        return convolve(spread[..., :-1]).gather(2, positions.clamp(max=self.slots - 1))


class ConstantHeadsModel(PreTrainedModel):
    """An encoder some of whose heads mix by constant matrices (Hassid et al., 2022, Section 3.1),
    called as the original is; only safetensors that are as they were saved are loaded.
    """

    config_class = ConstantHeadsConfig
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    auto: ClassVar[str] = "AutoModel"

    def __init__(self, config: Any, original: Any = None, matrices: Tensor | None = None) -> None:
        super().__init__(config)
        classes = {name: getattr(config, name, None) for name in CLASS_SETTINGS}
        base = transformers.AutoConfig.for_model(**{**config.base, **classes})
        model = getattr(transformers, self.auto).from_config(base, attn_implementation=TYPE)
        if original is not None:
            model.load_state_dict(original.state_dict())
        # Weights have the names of a model with a head, whatever this one has.
        headless = model.base_model is model
        self.model = nn.ModuleDict({model.base_model_prefix: model}) if headless else model
        family = self.family
        layers_by_module: dict[Any, list[int]] = {}
        for layer, module in enumerate(family.modules(model.base_model, family.attention)):
            layers_by_module.setdefault(module, []).append(layer)
        for module, layers in layers_by_module.items():
            constant = [config.heads[layer] for layer in layers]
            _keep_dependent(family, module, constant, base.num_attention_heads)
            module.first_layer = layers[0]
            shape = (sum(module.constant_counts), config.slots, config.slots)
            module.register_buffer("constants", torch.zeros(shape))
            if matrices is not None:
                of_layers = [matrices[layer, config.heads[layer]] for layer in layers]
                module.constants.copy_(torch.cat(of_layers))
        if family.prepare is not None:
            family.prepare(model.base_model, _CurrentPass(config.slots))
        self.post_init()

    @property
    def inner(self) -> Any:
        """A model of the original's class."""
        return next(iter(self.model.values())) if self.auto == "AutoModel" else self.model

    @property
    def family(self) -> Family:
        """The original's family."""
        family = family_of(self.config.base["model_type"])
        assert family is not None
        return family

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """Return what the original's class outputs; DataError where an input does not fit the
        slots.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
        real = mask.bool()
        numbers = mask.cumsum(dim=1) - 1
        last = self.config.slots - 1
        slots = self._slots(input_ids, real, numbers)
        if torch.compiler.is_compiling():
            # A graph has a column for each token of one text, of which the last is the last slot.
            is_spread = self.config.placement == "layout" and self.config.separators
            size = last + 1 if is_spread else slots.shape[1]
            column_ids = slots
            columns = torch.arange(size, device=slots.device)
            if self.config.placement != "positions":
                column_ids = torch.where(slots == last, size - 1, slots)
                columns = torch.where(columns == size - 1, last, columns)
        else:
            columns = slots[real].unique()
            size = columns.shape[0]
            column_ids = torch.searchsorted(columns, slots)
        column_ids = torch.where(real, column_ids, size)
        is_filled = real.new_zeros(real.shape[0], size + 1).scatter(1, column_ids, real)[:, :-1]
        positions = slots if self.config.positions == "slots" else numbers.clamp(min=0)
        tokens = _Tokens(columns, column_ids, is_filled, real, positions, {})
        family = self.family
        if family.padding is not None:
            first = family.padding(self.inner.config) + 1
            positions = (numbers + first).clamp(min=0)
        if family.segments and token_type_ids is not None:
            options["token_type_ids"] = token_type_ids
        if labels is not None:
            options["labels"] = labels
        if family.prepare is None:
            options["papa"] = tokens
        outer = _CURRENT_TOKENS.set(tokens)
        try:
            return self.inner(
                input_ids=input_ids, attention_mask=mask, position_ids=positions, **options
            )
        finally:
            _CURRENT_TOKENS.reset(outer)

    def _replicate_for_data_parallel(self) -> Any:
        """Return a copy for another device, as ``torch.nn.DataParallel`` needs it; EncoderError
        where layers of the copy would compute with the weights of this one.
        """
        if self.family.prepare is not None:
            raise EncoderError(
                f"an export of {self.config.base['model_type']} has no replicas for "
                "torch.nn.DataParallel: use torch.nn.parallel.DistributedDataParallel"
            )
        return super()._replicate_for_data_parallel()

    def _slots(self, input_ids: Tensor, real: Tensor, numbers: Tensor) -> Tensor:
        """Return the slot of each token (``papa.text.layout``), or its position."""
        slots = self.config.slots
        last = real & (numbers == numbers[:, -1:])
        separates = input_ids == self.config.sep_token_id
        inside = real & ~last & (numbers > 0) & separates
        # The number of the separator that ends the first text, or the only one.
        boundary = torch.where(inside | last, numbers, slots).amin(dim=1, keepdim=True)
        token_slots = numbers
        if self.config.placement == "layout":
            token_slots = torch.where(numbers < boundary, numbers, slots // 2 + numbers - boundary)
        if self.config.placement != "positions":
            token_slots = torch.where(last, slots - 1, token_slots)
        token_slots = token_slots.clamp(min=0)
        if not torch.compiler.is_compiling():
            framed = (last & separates).any(dim=1) & (inside.sum(dim=1) == self.config.separators)
            crowded = real[:, :-1] & real[:, 1:] & (token_slots.diff(dim=1) < 1)
            unfit = ~framed | crowded.any(dim=1) | (token_slots >= slots).any(dim=1)
            if unfit.any():
                texts = "two texts, each" if self.config.separators else "one text"
                raise DataError(
                    f"input {int(unfit.nonzero()[0])} does not fit into {slots} slots: give "
                    f"{texts} truncated to fit, with only the tokenizer's own special tokens"
                )
        return token_slots

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, name: Any, *arguments: Any, **options: Any
    ) -> Any:
        """Load an export as transformers does; weights that changed or are missing raise an
        ``ArtifactError``.
        """
        with_loading_info = options.pop("output_loading_info", False)
        settings = {**options, "use_safetensors": True, "output_loading_info": True}
        loaded: Any = super().from_pretrained(name, *arguments, **settings)
        model, loading_info = loaded
        for file, digest in (model.config.digests or {"config.json": ""}).items():
            if sha256_of_file(Path(str(cached_file(name, file, **options)))) != digest:
                raise ArtifactError(
                    f"{name}: {file} was modified after the export, or exported by an earlier "
                    "version: download or export the folder again"
                )
        # transformers leaves a buffer without a value uninitialised.
        missing = sorted(loading_info["missing_keys"])
        if missing:
            raise ArtifactError(
                f"{name}: {missing[0]} is missing, exported by an earlier version: export it again"
            )
        return (model, loading_info) if with_loading_info else model

    def save_pretrained(self, save_directory: Any, *arguments: Any, **options: Any) -> None:
        """Save an export as transformers does, with the SHA-256 of its weights."""
        super().save_pretrained(save_directory, *arguments, **options)
        files = sorted(Path(save_directory).glob("*.safetensors"))
        self.config.digests = {file.name: sha256_of_file(file) for file in files}
        self.config.save_pretrained(save_directory)


def _keep(linear: nn.Linear, rows: Tensor) -> None:
    """Keep only these output rows of a linear map, in place."""
    for name, whole in list(linear.named_parameters()):
        setattr(linear, name, nn.Parameter(whole.detach()[rows]))
    linear.out_features = len(rows)


def _keep_dependent(
    family: Family, module: Any, constant: list[list[int]], head_count: int
) -> None:
    """Keep queries and keys only of heads that are not constant, in each layer of one attention
    module, in place.

    Args:
        family: Of the model.
        module: An attention module, which several layers may share.
        constant: The constant heads of each of its layers.
        head_count: Number of heads of a layer.
    """
    every_head = range(head_count)
    dependent = [head for head in every_head if any(head not in heads for heads in constant)]
    module.constant_counts = [len(heads) for heads in constant]
    orders = [[*heads, *(head for head in every_head if head not in heads)] for heads in constant]
    module.register_buffer("head_order", torch.tensor(orders))
    for name in family.projections:
        linear = getattr(module, name, None)
        if linear is None:
            continue
        rows = family.rows(linear, dependent, head_count)
        if not len(rows):  # Any states do as queries and keys.
            setattr(module, name, nn.Identity())
        elif len(rows) < linear.out_features:
            gives_values = linear.out_features > linear.in_features
            if gives_values or len(constant) > 1:
                head_width = linear.in_features // head_count
                blocks = torch.zeros(linear.out_features // head_width, dtype=torch.long)
                blocks[rows[::head_width] // head_width] = torch.arange(len(rows) // head_width)
                # The map's own, so that a replica of it (DataParallel) has them on its device.
                linear.register_buffer("blocks", blocks)
                linear.register_forward_hook(partial(_every_head, head_width))
            _keep(linear, rows)


def _every_head(head_width: int, linear: Any, _: object, projected: Tensor) -> Tensor:
    """Return what a map gives with a place for every head; what is in those of constant heads is
    not read.
    """
    by_block = projected.unflatten(-1, (-1, head_width)).index_select(-2, linear.blocks)
    return by_block.flatten(-2)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _: object,
    scaling: float | None = None,
    *,
    papa: _Tokens,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    position_bias: Tensor | None = None,
    score_bias: ScoreBias | None = None,
    **__: object,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention for transformers' attention interface: [batch, heads, m, width] becomes
    [batch, m, heads, width]. Queries and keys are those of all heads, or of those that are not
    constant.
    """
    call = papa.calls.get(module.first_layer, 0)
    papa.calls[module.first_layer] = (call + 1) % len(module.constant_counts)
    constants = module.constants.split(module.constant_counts)[call]
    order = module.head_order[call]
    constant_heads = order[: len(constants)]
    dependent_heads = order[len(constants) :]
    outputs: list[Tensor] = []
    if len(constant_heads):
        outputs.append(_mixed(constants, _states_of_heads(value, constant_heads), papa, dropout))
    if len(dependent_heads):
        query = _states_of_heads(query, dependent_heads)
        key = _states_of_heads(key, dependent_heads)
        mask = papa.real[:, None, None]
        if sliding_window:
            positions = papa.positions
            distances = (positions[:, None, :, None] - positions[:, None, None]).abs()
            # Padding sees itself, or its softmax would be NaN.
            itself = torch.eye(positions.shape[1], dtype=torch.bool, device=positions.device)
            mask = (distances < sliding_window) & mask | itself
        bias = None if position_bias is None else _states_of_heads(position_bias, dependent_heads)
        if score_bias is not None:
            bias = score_bias(query, key)
        if bias is not None:
            bias = bias.to(query.dtype)
            mask = bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
        outputs.append(
            scaled_dot_product_attention(
                query, key, _states_of_heads(value, dependent_heads), mask, dropout, scale=scaling
            )
        )
    output = torch.cat(outputs, dim=1)
    if len(outputs) > 1:
        output = torch.empty_like(output).index_copy(1, order, output)
    return output.transpose(1, 2).contiguous(), None


def _states_of_heads(states: Tensor, heads: Tensor) -> Tensor:
    """Return the states of these heads; as they are where they are of no others."""
    return states if states.shape[1] == len(heads) else states.index_select(1, heads)


def _mixed(constants: Tensor, value: Tensor, tokens: _Tokens, dropout: float) -> Tensor:
    """Return what constant heads output."""
    columns = tokens.columns
    size = columns.shape[0]
    chosen = tokens.column_ids[:, None, :, None].expand_as(value)
    # Not len(), which is a number where a graph is traced and sizes are symbols.
    shape = (value.shape[0], value.shape[1], size + 1, value.shape[-1])
    moved = value.new_zeros(shape).scatter(2, chosen, value)[:, :, :-1]
    # By a flat look-up: one along the last axis is slow.
    pairs = (columns[:, None] * constants.shape[-1] + columns).flatten()
    matrices = constants.flatten(1).index_select(1, pairs).view(-1, size, size)
    mixed = constant_product(matrices, moved, tokens.is_filled, dropout)
    return mixed.gather(2, chosen.clamp(max=size - 1))


KINDS: dict[str, Any] = {"": ConstantHeadsModel} | {
    head: type(f"ConstantHeads{head}", (ConstantHeadsModel,), {"auto": f"AutoModel{head}"})
    for head in ("ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")
}
transformers.AttentionInterface.register(TYPE, _attention)
transformers.AttentionMaskInterface.register(TYPE, lambda *_, **__: None)
transformers.AutoConfig.register(TYPE, ConstantHeadsConfig, exist_ok=True)
for _kind in KINDS.values():
    getattr(transformers, _kind.auto).register(ConstantHeadsConfig, _kind)
