"""An encoder with constant heads as an ordinary model of ``transformers``, in a folder with a card.

Its constant heads come first, and its query and key maps are those of the others. Constant heads
mix in columns, one for each slot that a batch uses, so that their matrices are read once for it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers
from huggingface_hub import ModelCard, ModelCardData
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file

from papa.errors import ArtifactError, DataError, EncoderError, SpecError, joined
from papa.files import scratch_beside, sha256_of_file
from papa.heads.constants import ConstantMatrices, constant_product
from papa.library.ablating import Heads, checked_heads
from papa.library.renamed import formerly
from papa.library.substitutes import RequestedSubstitute, substitute_for
from papa.models.supported import Family, family_of
from papa.text.tokens import special_tokens_of

TYPE = "papa_constant_heads"
FAMILIES = ("BERT", "RoBERTa", "ELECTRA", "DistilBERT", "ModernBERT")
"""Those whose layers have maps of their own and call transformers' attention interface."""
_CLASSES = ("id2label", "label2id", "problem_type")


class ConstantHeadsConfig(PreTrainedConfig):
    """The original's ``base``; the constant ``heads`` of each layer; S ``slots`` for one text, or
    two with ``separators`` between; ``placement`` of tokens in them, those of the "layout", or
    "positions" of tokens, of which "ends" puts the last token in the last slot; ``first``, from
    which positions count, None where they are slots; ``sha256`` of the files of weights; and what
    was measured, ``study``.
    """

    model_type = TYPE

    def __init__(self, **settings: Any) -> None:
        unset = {"base": {}, "heads": [], "slots": 0, "separators": 0, "placement": "layout"}
        super().__init__(**{**unset, "first": None, "sha256": {}, "study": {}, **settings})


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
        classes = {name: getattr(config, name, None) for name in _CLASSES}
        base = transformers.AutoConfig.for_model(**{**config.base, **classes})
        model = getattr(transformers, self.auto).from_config(base, attn_implementation=TYPE)
        if original is not None:
            model.load_state_dict(original.state_dict())
        # Weights have the names of a model with a head, whatever this one has.
        headless = model.base_model is model
        self.model = nn.ModuleDict({model.base_model_prefix: model}) if headless else model
        family: Any = family_of(base.model_type)
        self.segments: bool = family.segments
        modules, outputs = (
            family.modules(model.base_model, path) for path in (family.attention, family.output)
        )
        size = base.hidden_size
        by_head = torch.arange(size).view(base.num_attention_heads, -1)
        for layer, heads in enumerate(config.heads):
            module = modules[layer]
            dependent = [head for head in range(len(by_head)) if head not in heads]
            mixed = by_head[[*heads, *dependent]].flatten()
            looking = by_head[dependent].flatten()
            outputs[layer].weight.data = outputs[layer].weight.data[:, mixed]
            fused = getattr(module, "Wqkv", None)
            if fused:
                _keep(fused, torch.cat([looking, looking + size, mixed + 2 * size]))
                fused.register_forward_hook(partial(_padded, size - len(looking)))
            else:
                _keep(getattr(module, family.value), mixed)
                for name in family.projections:
                    _keep(getattr(module, name), looking)
                    if not dependent:  # Any states do as queries and keys.
                        setattr(module, name, nn.Identity())
            module.register_buffer("constants", torch.zeros(len(heads), config.slots, config.slots))
            if matrices is not None:
                module.constants.copy_(matrices[layer, heads])
        self.post_init()

    @property
    def inner(self) -> Any:
        """A model of the original's class."""
        return next(iter(self.model.values())) if self.auto == "AutoModel" else self.model

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
        first = self.config.first
        positions = slots if first is None else (numbers + first).clamp(min=0)
        if self.segments and token_type_ids is not None:
            options["token_type_ids"] = token_type_ids
        if labels is not None:
            options["labels"] = labels
        return self.inner(
            input_ids=input_ids,
            attention_mask=mask,
            position_ids=positions,
            papa=(columns, column_ids, is_filled, real, positions),
            **options,
        )

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
        """Load an export as transformers does; weights that changed raise an ``ArtifactError``."""
        loaded = super().from_pretrained(name, *arguments, **{**options, "use_safetensors": True})
        sha256 = (loaded[0] if isinstance(loaded, tuple) else loaded).config.sha256
        for file, digest in (sha256 or {"config.json": ""}).items():
            if sha256_of_file(Path(str(cached_file(name, file, **options)))) != digest:
                raise ArtifactError(
                    f"{name}: {file} was modified after the export: download or export "
                    "the folder again"
                )
        return loaded

    def save_pretrained(self, save_directory: Any, *arguments: Any, **options: Any) -> None:
        """Save an export as transformers does, with the SHA-256 of its weights."""
        super().save_pretrained(save_directory, *arguments, **options)
        files = sorted(Path(save_directory).glob("*.safetensors"))
        self.config.sha256 = {file.name: sha256_of_file(file) for file in files}
        self.config.save_pretrained(save_directory)


def _keep(linear: nn.Linear, rows: Tensor) -> None:
    """Keep only these output rows of a linear map, in place."""
    for name, whole in list(linear.named_parameters()):
        setattr(linear, name, nn.Parameter(whole.detach()[rows]))
    linear.out_features = len(rows)


def _padded(constant: int, linear: nn.Linear, _: object, mixed: Tensor) -> Tensor:
    """Return what ModernBERT's one map gives, with 0 as queries and keys of constant heads."""
    width = linear.in_features - constant
    query, key, value = mixed.split([width, width, linear.in_features], dim=-1)
    return torch.cat([pad(query, (constant, 0)), pad(key, (constant, 0)), value], dim=-1)


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _: object, **options: Any
) -> tuple[Tensor, None]:
    """Compute attention for transformers' attention interface: [batch, heads, m, width] becomes
    [batch, m, heads, width]. The last queries and keys are those of heads that are not constant.
    """
    columns, column_ids, is_filled, real, positions = options["papa"]
    constant = len(module.constants)
    dropout = options.get("dropout", 0.0)
    outputs: list[Tensor] = []
    if constant:
        constant_value = value[:, :constant]
        size = columns.shape[0]
        chosen = column_ids[:, None, :, None].expand_as(constant_value)
        # Not len(), which is a number where a graph is traced and sizes are symbols.
        shape = (constant_value.shape[0], constant, size + 1, constant_value.shape[-1])
        moved = constant_value.new_zeros(shape).scatter(2, chosen, constant_value)[:, :, :-1]
        # By a flat look-up: one along the last axis is slow.
        pairs = (columns[:, None] * module.constants.shape[-1] + columns).flatten()
        matrices = module.constants.flatten(1).index_select(1, pairs).view(-1, size, size)
        mixed = constant_product(matrices, moved, is_filled, dropout)
        outputs.append(mixed.gather(2, chosen.clamp(max=size - 1)))
    dependent = value.shape[1] - constant
    if dependent:
        mask = real[:, None, None]
        window = options.get("sliding_window")
        if window:
            distances = (positions[:, None, :, None] - positions[:, None, None]).abs()
            # Padding sees itself, or its softmax would be NaN.
            itself = torch.eye(real.shape[1], dtype=torch.bool, device=real.device)
            mask = (distances < window) & mask | itself
        outputs.append(
            scaled_dot_product_attention(
                query[:, -dependent:],
                key[:, -dependent:],
                value[:, constant:],
                mask,
                dropout,
                scale=options["scaling"],
            )
        )
    return torch.cat(outputs, dim=1).transpose(1, 2).contiguous(), None


KINDS: dict[str, Any] = {"": ConstantHeadsModel} | {
    head: type(f"ConstantHeads{head}", (ConstantHeadsModel,), {"auto": f"AutoModel{head}"})
    for head in ("ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")
}
transformers.AttentionInterface.register(TYPE, _attention)
transformers.AttentionMaskInterface.register(TYPE, lambda *_, **__: None)
transformers.AutoConfig.register(TYPE, ConstantHeadsConfig, exist_ok=True)
for _kind in KINDS.values():
    getattr(transformers, _kind.auto).register(ConstantHeadsConfig, _kind)


def family_to_export(model_type: str) -> Family:
    """Return the family of an original; refuse one that cannot be exported."""
    family = family_of(model_type)
    if family is None or family.name not in FAMILIES:
        raise EncoderError(
            f"'{model_type}' cannot be exported, as its layers share their maps or compute "
            f"attention by themselves: take one of {joined(FAMILIES)}, or papa.ablated"
        )
    return family


@formerly(constants="substitute")
def export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    heads: Heads,
    substitute: RequestedSubstitute,
    folder: str | Path,
    pairs: bool | None = None,
    study: Mapping[str, Any] | None = None,
) -> None:
    """Write a model with constant heads as a folder that ``AutoModel``, ``pipeline`` and
    ``SentenceTransformer`` load where ``papa`` is imported.

    Examples:
        >>> import papa, tempfile
        >>> from transformers import AutoModel
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> average = papa.average(encoder, ["a fine film", "rather dull"], progress=False)
        >>> stock, to = AutoModel.from_pretrained(encoder.path), tempfile.mkdtemp()
        >>> papa.export(
        ...     stock, encoder.tokenizer, heads={0: [1, 2], 3: [0]}, substitute=average, folder=to
        ... )
        >>> type(AutoModel.from_pretrained(to)).__name__
        'ConstantHeadsModel'

    Args:
        model: A model of transformers. Its task's head is exported too, and tokens then have their
            ordinary positions, else those of their slots.
        tokenizer: The model's tokenizer; texts are truncated at its ``model_max_length`` if the
            slots hold more.
        heads: The heads that become constant, as for ``ablated``.
        substitute: Constant matrices, from ``average`` or ``constants`` or [layers, heads, slots,
            slots].
        folder: Where to write: must not exist, or be empty.
        pairs: Whether an input has two texts; None takes what the texts of the average had.
        study: What the heads were measured at, for the model card.

    Raises:
        EncoderError: The model cannot be exported.
        SpecError: The heads do not fit the model, or the substitute holds no matrices.
        ArtifactError: The matrices do not fit the model, or the folder is not empty.
    """
    folder = Path(folder)
    head = "".join(type(model).__name__.partition("For")[1:])
    family = family_to_export(model.config.model_type)
    base = model.config.to_dict()
    if head not in KINDS:
        raise EncoderError(
            f"a {type(model).__name__} has no head that can be exported: give its base_model"
        )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ArtifactError(f"{folder} is not empty: give a new or empty folder")
    matrices = substitute_for(model, substitute)
    if not isinstance(matrices, ConstantMatrices):
        raise SpecError("substitute holds no constant matrices: give what papa.average returns")
    layers, count, slots, _ = matrices.matrices.shape
    chosen = checked_heads(heads, [count] * layers)
    if not chosen:
        raise SpecError("heads is empty: give at least one head that becomes constant")
    tokens = special_tokens_of(tokenizer)
    tokenizer = copy.deepcopy(tokenizer)
    if pairs is None:
        pairs = len(getattr(substitute, "special", None) or ()) > 2
    placement = "layout"
    if matrices.special is not None and 0 not in matrices.special:
        placement = "ends" if matrices.has_end_slot else "positions"
    first = None if placement == "layout" and not head else 0
    config = ConstantHeadsConfig(
        base=base,
        heads=[
            [number for head_layer, number in chosen if head_layer == layer]
            for layer in range(layers)
        ],
        slots=slots,
        separators=tokens.between if pairs else 0,
        placement=placement,
        first=family.padding(model.config) + 1 if family.padding else first,
        study=dict(study or {}),
        pad_token_id=tokens.pad,
        sep_token_id=tokens.sep,
        hidden_size=model.config.hidden_size,
        **{name: base.pop(name, None) for name in _CLASSES},
    )
    exported = KINDS[head](config, model, matrices.matrices).to(model.device, model.dtype).eval()
    tokenizer.model_max_length = min(slots, tokenizer.model_max_length)
    # As in a study, a special token that a text spells is text; but masks are given so.
    tokenizer.split_special_tokens = head != "ForMaskedLM"
    tokenizer.init_kwargs["split_special_tokens"] = tokenizer.split_special_tokens
    card = ModelCard.from_template(
        ModelCardData(library_name="transformers", tags=["papa-attention"]),
        str(Path(__file__).with_name("export.md.j2")),
        name=Path(model.name_or_path or "").name or type(model).__name__,
        heads=layers * count,
        config=config,
    )
    with scratch_beside(folder) as scratch:
        exported.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        card.save(scratch / "README.md")
        scratch.rename(folder)
