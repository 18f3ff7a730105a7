"""What an export loads as: the original's configuration and model, with constant heads."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from papa.errors import ArtifactError, DataError, EncoderError
from papa.exported.attention import CURRENT_TOKENS, TYPE, CurrentPass, PassTokens
from papa.exported.projections import keep_input_dependent
from papa.models.supported import Family, family_of

CLASS_SETTINGS = ("id2label", "label2id", "problem_type")
"""Settings of the original that say what its task head answers."""


class ConstantHeadsConfig(PreTrainedConfig):
    """The configuration of an export.

    Settings:
        base: The original's configuration.
        heads: The constant heads of each layer.
        slots: S.
        separators: How many separators stand between two texts; 0 for one text.
        placement: Where tokens stand: "layout", in the slots of the layout; "positions", each in
            the slot of its number; "ends", likewise, and the last token in the last slot.
        positions: What the original takes as position: "slots", or numbers of "tokens".
        study: What the heads were measured at.
    """

    model_type = TYPE

    def __init__(self, **settings: Any) -> None:
        unset = {"base": {}, "heads": [], "slots": 0, "separators": 0, "placement": "layout"}
        super().__init__(**{**unset, "positions": "tokens", "study": {}, **settings})


class ConstantHeadsModel(PreTrainedModel):
    """An encoder some of whose heads mix by constant matrices (Hassid et al., 2022, Section 3.1),
    called as the original is; only safetensors are loaded.
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
            keep_input_dependent(family, module, constant, base.num_attention_heads)
            module.first_layer = layers[0]
            shape = (sum(module.constant_counts), config.slots, config.slots)
            module.register_buffer("constants", torch.zeros(shape))
            if matrices is not None:
                by_layer = [matrices[layer, config.heads[layer]] for layer in layers]
                module.constants.copy_(torch.cat(by_layer))
        if family.prepare is not None:
            family.prepare(model.base_model, CurrentPass(config.slots))
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
        # The number of each token in its text, from 0; before the first token -1.
        numbers = mask.cumsum(dim=1) - 1
        tokens = self._tokens(input_ids, mask.bool(), numbers)
        family = self.family
        position_ids = tokens.positions
        if family.padding is not None:
            first = family.padding(self.inner.config) + 1
            position_ids = (numbers + first).clamp(min=0)
        if family.segments and token_type_ids is not None:
            options["token_type_ids"] = token_type_ids
        if labels is not None:
            options["labels"] = labels
        if family.prepare is None:
            options["papa"] = tokens
        outer = CURRENT_TOKENS.set(tokens)
        try:
            return self.inner(
                input_ids=input_ids, attention_mask=mask, position_ids=position_ids, **options
            )
        finally:
            CURRENT_TOKENS.reset(outer)

    def _tokens(self, input_ids: Tensor, real: Tensor, numbers: Tensor) -> PassTokens:
        """Return where the tokens of a pass stand; DataError where an input does not fit."""
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
        return PassTokens(columns, column_ids, is_filled, real, positions, {})

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
        """Load an export as transformers does, from safetensors alone; missing weights raise an
        ``ArtifactError``.
        """
        with_loading_info = options.pop("output_loading_info", False)
        settings = {**options, "use_safetensors": True, "output_loading_info": True}
        loaded: Any = super().from_pretrained(name, *arguments, **settings)
        model, loading_info = loaded
        # transformers leaves a buffer without a value uninitialised.
        missing = sorted(loading_info["missing_keys"])
        if missing:
            raise ArtifactError(
                f"{name}: {missing[0]} is missing, exported by an earlier version: export it again"
            )
        return (model, loading_info) if with_loading_info else model


KINDS: dict[str, Any] = {"": ConstantHeadsModel} | {
    head: type(f"ConstantHeads{head}", (ConstantHeadsModel,), {"auto": f"AutoModel{head}"})
    for head in ("ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")
}
transformers.AutoConfig.register(TYPE, ConstantHeadsConfig, exist_ok=True)
for _kind in KINDS.values():
    getattr(transformers, _kind.auto).register(ConstantHeadsConfig, _kind)
