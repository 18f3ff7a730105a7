"""An encoder with constant heads as an ordinary model of ``transformers``.

The heads of a layer are interchangeable, so an export has its constant heads first: its query and
key maps are those of the others, and nothing is looked up by head. A call moves its tokens into
columns, one for each slot that the batch uses, and the hidden states back, so that constant
matrices are read once for the whole batch.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
import transformers
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import cached_file
from transformers.utils.generic import can_return_tuple

from papa.attention.product import at_slots, constant_product
from papa.corpora.tokens import IGNORED
from papa.encoders.family import Family
from papa.encoders.supported import family_of
from papa.errors import ArtifactError, DataError, EncoderError, joined
from papa.registered import TYPE

FAMILIES = ("BERT", "RoBERTa", "ELECTRA", "DistilBERT", "ModernBERT")
"""Those whose layers have maps of their own and call transformers' attention interface."""
_OF_HUB = ("cache_dir", "local_files_only", "revision", "subfolder", "token")


class ConstantHeadsConfig(PreTrainedConfig):
    """``base`` is the original's configuration, and ``heads`` are the constant ones of each layer;
    their constants have a ``shape``: slots by slots, or of outputs places by width. S ``slots``
    hold one text, or two with ``separators`` between, of up to ``longest`` tokens. Absolute
    ``positions`` are those of slots, or of tokens in their text. ``digests`` are the SHA-256 of
    files of weights, and ``study`` is what was measured.
    """

    model_type = TYPE
    base: dict[str, Any]
    heads: list[list[int]]
    shape: list[int]
    slots: int
    longest: list[int]
    separators: int
    positions: Literal["slots", "tokens"]
    digests: dict[str, str]
    study: dict[str, Any]

    def __init__(self, **settings: Any) -> None:
        nothing = {
            "base": {},
            "heads": [],
            "shape": [0, 0],
            "slots": 0,
            "longest": [],
            "separators": 0,
        }
        unsaid = {"positions": "slots", "digests": {}, "study": {}, "pad_token_id": 0}
        super().__init__(**{**nothing, **unsaid, **settings})


class _FusedMaps(nn.Module):
    """ModernBERT's map to queries, keys and values; queries and keys of constant heads are 0."""

    def __init__(self, whole: nn.Linear, constant: int) -> None:
        super().__init__()
        self.constant, width = constant, whole.in_features
        self.sizes = width - constant, width - constant, width
        self.maps = nn.Linear(width, sum(self.sizes), bias=whole.bias is not None)

    def forward(self, states: Tensor) -> Tensor:
        *own, value = self.maps(states).split(self.sizes, dim=-1)
        return torch.cat([*(F.pad(one, (self.constant, 0)) for one in own), value], dim=-1)


class ConstantHeadsModel(PreTrainedModel):
    """An encoder some of whose heads mix by constant matrices (Hassid et al., 2022, Section 3.1),
    called as the original is; only safetensors that are as they were saved are loaded.
    """

    config_class = ConstantHeadsConfig
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    auto: ClassVar[str] = "AutoModel"
    places: Tensor | None

    def __init__(self, config: ConstantHeadsConfig) -> None:
        super().__init__(config)
        classes = {name: getattr(config, name) for name in ("id2label", "label2id", "problem_type")}
        original = transformers.AutoConfig.for_model(**{**config.base, **classes})
        self.family = check_family(original)
        model = getattr(transformers, self.auto).from_config(original, attn_implementation=TYPE)
        # Weights have the names of a model with a head, whatever this one has.
        headless = model.base_model is model
        self.model = nn.ModuleDict({model.base_model_prefix: model}) if headless else model
        size, count = original.hidden_size, original.num_attention_heads
        modules: Any = self.family.attentions(model.base_model)
        for module, heads in zip(modules, config.heads, strict=True):
            constant = len(heads) * size // count
            if hasattr(module, "Wqkv"):
                module.Wqkv = _FusedMaps(module.Wqkv, constant)
            else:
                # Where all heads are constant, any states do as queries and keys.
                kept = size - constant
                for name in self.family.projections:
                    setattr(module, name, nn.Linear(size, kept) if kept else nn.Identity())
            module.register_buffer("constants", torch.zeros(len(heads), *config.shape))
        # Of outputs, the place of each slot in an input of so many tokens.
        places = torch.zeros(config.slots + 1, config.slots, dtype=torch.long)
        self.register_buffer("places", places if config.shape != 2 * [config.slots] else None)
        self.post_init()

    @property
    def inner(self) -> Any:
        """A model of the original's class."""
        return next(iter(self.model.values())) if self.auto == "AutoModel" else self.model

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **others: Any,
    ) -> Any:
        """What the original's class puts out; padding may be on either side.

        Raises:
            DataError: an input does not fit the slots.
        """
        config, family = self.config, self.family
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
        real, numbers = mask.bool(), mask.cumsum(dim=1) - 1
        slots = self._slots(input_ids, real, numbers)
        size = slots.shape[1]
        if not torch.compiler.is_compiling():
            columns = slots[real].unique()
            places = torch.searchsorted(columns, slots)
        elif len(config.longest) == 2:
            columns, places = torch.arange(config.slots, device=slots.device), slots
        else:
            # A graph has a column for each token, so the last slot is the last column.
            columns = torch.arange(size, device=slots.device)
            places = torch.where(slots == config.slots - 1, size - 1, slots)
            columns = torch.where(columns == size - 1, config.slots - 1, columns)
        size = columns.shape[0]
        places = torch.where(real, places, size)

        def placed(values: Tensor, fill: int) -> Tensor:
            full = values.new_full((values.shape[0], size + 1), fill)
            return full.scatter(1, places, values)[:, :-1].contiguous()

        def in_order(states: Tensor) -> Tensor:
            chosen = places.clamp(max=size - 1)[..., None].expand(-1, -1, states.shape[-1])
            return states.gather(1, chosen)

        held = placed(mask, 0)
        of_outputs: Any = self.places
        outputs = None if of_outputs is None else of_outputs[mask.sum(1, keepdim=True), columns]
        positions = columns.expand_as(held)
        if family.padding is not None:
            before = family.padding(self.inner.config)
            positions = placed(numbers + before + 1, before)
        elif config.positions == "tokens":
            positions = placed(numbers, 0)
        if family.segments and token_type_ids is not None:
            others["token_type_ids"] = placed(token_type_ids, 0)
        if labels is not None:
            others["labels"] = placed(labels, IGNORED) if labels.shape == real.shape else labels
        found = self.inner(
            input_ids=placed(input_ids, config.pad_token_id),
            attention_mask=held,
            position_ids=positions,
            papa=(columns, outputs, held.bool(), *self._masks(held.bool(), positions)),
            **others,
        )
        for name in ("last_hidden_state", "hidden_states", "logits"):
            states = found.get(name)
            if isinstance(states, tuple):
                found[name] = tuple(map(in_order, states))
            elif states is not None and states.dim() == 3:
                found[name] = in_order(states)
        return found

    def _slots(self, input_ids: Tensor, real: Tensor, numbers: Tensor) -> Tensor:
        """The slot of each token (``papa.corpora.layout``)."""
        last, separates = real & (numbers == numbers[:, -1:]), input_ids == self.config.sep_token_id
        inside = real & ~last & (numbers > 0) & separates
        slots, between, longest = self.config.slots, self.config.separators, self.config.longest
        # The number of what ends the first text, or the only one.
        ends = torch.where(inside | last, numbers, slots).amin(dim=1, keepdim=True)
        if not torch.compiler.is_compiling():
            framed = (last & separates).any(dim=1) & (inside.sum(dim=1) == between)
            second = numbers[:, -1:] - ends - between
            fits = framed & ((ends - 1 <= longest[0]) & (second <= longest[-1]))[:, 0]
            if not fits.all():
                texts = " and a second of up to ".join(f"{most} tokens" for most in longest)
                raise DataError(
                    f"input {int((~fits).nonzero()[0])} does not fit {slots} slots: give one text "
                    f"of up to {texts}, and the tokenizer's special tokens around them alone"
                )
        moved = torch.where(numbers < ends, numbers, slots // 2 + numbers - ends)
        return torch.where(last, slots - 1, moved).clamp(min=0)

    def _masks(self, real: Tensor, positions: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """What a query sees, in ModernBERT's local layers too; None where that is every key."""
        whole = not torch.compiler.is_compiling() and bool(real.all())
        mask = None if whole else real[:, None, None]
        if not (window := getattr(self.inner.config, "local_attention", None)):
            return mask, None
        distances = (positions[:, None, :, None] - positions[:, None, None]).abs()
        near = distances <= window // 2
        # A column without a token sees itself, or its softmax would be NaN.
        return mask, near if mask is None else (near & mask) | (distances == 0)

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, name: Any, *arguments: Any, **options: Any
    ) -> Any:
        """As of transformers; a file of weights that changed is an ``ArtifactError``."""
        found = super().from_pretrained(name, *arguments, **{**options, "use_safetensors": True})
        digests = (found[0] if isinstance(found, tuple) else found).config.digests
        asked = {option: options[option] for option in _OF_HUB if option in options}
        for file, digest in (digests or {"config.json": ""}).items():
            if _digest(cached_file(name, file, **asked)) != digest:
                raise ArtifactError(
                    f"{name}: {file} is not as it was saved: fetch the folder or export it again"
                )
        return found

    def save_pretrained(self, save_directory: Any, *arguments: Any, **options: Any) -> None:
        """As of transformers, with the digests of the weights."""
        super().save_pretrained(save_directory, *arguments, **options)
        files = sorted(Path(save_directory).glob("*.safetensors"))
        self.config.digests = {file.name: _digest(file) for file in files}
        self.config.save_pretrained(save_directory)

    def take(self, original: PreTrainedModel, constants: Tensor, places: Tensor | None) -> None:
        """The weights of an original, heads in the order of this one; its constants [layers, heads,
        *shape], and the places of those that are outputs.
        """
        weights, family, encoder = original.state_dict(), self.family, original.base_model
        names = {module: name for name, module in original.named_modules()}
        every = torch.arange(original.config.hidden_size)
        by_head = every.view(original.config.num_attention_heads, -1)
        maps = zip(family.attentions(encoder), family.output_maps(encoder), strict=True)
        for layer, (module, output) in enumerate(maps):
            own, name = self.config.heads[layer], names[module]
            kept = [head for head in range(len(by_head)) if head not in own]
            mixed, looking = by_head[own + kept].flatten(), by_head[kept].flatten()
            weights[f"{names[output]}.weight"] = output.weight[:, mixed]
            weights[f"{name}.constants"] = constants[layer, own]
            rows = {one: (one, looking) for one in family.projections} | {
                family.value: (family.value, mixed),
                "Wqkv": (
                    "Wqkv.maps",
                    torch.cat([looking, looking + len(every), mixed + 2 * len(every)]),
                ),
            }
            for old, (new, chosen) in rows.items():
                for part in ("weight", "bias"):
                    whole = weights.pop(f"{name}.{old}.{part}", None)
                    if whole is not None and len(chosen):
                        weights[f"{name}.{new}.{part}"] = whole[chosen]
        self.inner.load_state_dict(weights)
        if self.places is not None and places is not None:
            self.places.copy_(places)


KINDS = {"AutoModel": ConstantHeadsModel} | {
    f"AutoModel{head}": type(
        f"ConstantHeads{head}", (ConstantHeadsModel,), {"auto": f"AutoModel{head}"}
    )
    for head in ("ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")
}


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Float[Tensor, "batch heads m width"],
    attention_mask: None,
    *,
    papa: tuple[Tensor, Tensor | None, Tensor, Tensor | None, Tensor | None],
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **_: object,
) -> tuple[Float[Tensor, "batch m heads width"], None]:
    """An export's entry in transformers' attention interface; the last queries and keys are those
    of heads that are not constant.
    """
    columns, outputs, real, everywhere, near = papa
    constant, found = len(module.constants), []
    if constant and outputs is not None:
        found.append(module.constants[:, outputs].transpose(0, 1))
    elif constant:
        every = torch.arange(constant, device=columns.device)
        matrices = at_slots(module.constants, every, columns)
        found.append(constant_product(matrices, value[:, :constant], real, dropout))
    if kept := value.shape[1] - constant:
        mask = everywhere if sliding_window is None else near
        own = query[:, -kept:], key[:, -kept:], value[:, constant:]
        found.append(F.scaled_dot_product_attention(*own, mask, dropout, scale=scaling))
    return torch.cat(found, dim=1).transpose(1, 2).contiguous(), None


def check_family(config: Any) -> Family:
    """The family of an original; refuse one that cannot be exported."""
    family = family_of(config.model_type)
    if family is None or family.name not in FAMILIES:
        raise EncoderError(
            f"'{config.model_type}' cannot be exported, as its layers share their maps or compute "
            f"attention by themselves: take one of {joined(FAMILIES)}, or papa.ablated"
        )
    return family


def _digest(path: Any) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


transformers.AttentionInterface.register(TYPE, _attention)
transformers.AttentionMaskInterface.register(TYPE, lambda *_, **__: None)
transformers.AutoConfig.register(TYPE, ConstantHeadsConfig, exist_ok=True)
for _auto, _kind in KINDS.items():
    getattr(transformers, _auto).register(ConstantHeadsConfig, _kind)
