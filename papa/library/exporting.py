"""Writing an encoder with constant heads as a folder of ``transformers``, with a model card."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from huggingface_hub import ModelCard, ModelCardData
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from papa.errors import ArtifactError, EncoderError, SpecError, shown
from papa.exported.model import CLASS_SETTINGS, KINDS, ConstantHeadsConfig
from papa.files import scratch_beside
from papa.heads.constants import ConstantMatrices
from papa.library.ablating import Heads, parse_heads
from papa.library.substitutes import substitute_for
from papa.models.supported import family_for
from papa.spec.orders import Head
from papa.text.tokens import special_tokens_of


def export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    heads: Heads,
    substitute: ConstantMatrices | Tensor | np.ndarray,
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
            slots]. An average is over the layout of ``load_encoder``, while ``measure`` averages
            an in-memory model by position: measure the exported model itself.
        folder: Where to write: must not exist, or be empty.
        pairs: Whether an input has two texts; None takes what the texts of the average had.
        study: What the heads were measured at, and the ``base`` model's name, for the model card.

    Raises:
        EncoderError: The model cannot be exported.
        SpecError: The heads do not fit the model, or the substitute holds no matrices.
        ArtifactError: The matrices do not fit the model, or the folder is not empty.
    """
    folder = Path(folder)
    _check_exportable(model, substitute, folder)
    matrices = cast("ConstantMatrices", substitute_for(model, substitute))
    layers, count, slots, _ = matrices.matrices.shape
    chosen = parse_heads(heads, [count] * layers)
    if not chosen:
        raise SpecError("heads is empty: give at least one head that becomes constant")
    if pairs is None:
        pairs = len(getattr(substitute, "special", None) or ()) > 2
    config = _config_of(model, tokenizer, chosen, matrices, pairs, dict(study or {}))
    model_class = KINDS[_task_head(model)]
    exported = model_class(config, model, matrices.matrices).to(model.device, model.dtype).eval()
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.model_max_length = min(slots, tokenizer.model_max_length)
    # As in a study, a special token that a text spells is text; but masks are given so.
    tokenizer.split_special_tokens = _task_head(model) != "ForMaskedLM"
    tokenizer.init_kwargs["split_special_tokens"] = tokenizer.split_special_tokens
    card = _model_card(model, config, layers * count)
    with scratch_beside(folder) as scratch:
        exported.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        card.save(scratch / "README.md")
        scratch.rename(folder)


def _task_head(model: PreTrainedModel) -> str:
    """Return how the name of a model's class ends, such as ``ForMaskedLM``; "" without a task."""
    return "".join(type(model).__name__.partition("For")[1:])


def _check_exportable(model: object, substitute: object, folder: Path) -> None:
    """Refuse what cannot be exported, and a folder that holds files."""
    if not isinstance(model, PreTrainedModel):
        raise EncoderError(
            f"model is a {type(model).__name__}, expected a model of transformers, such as "
            "AutoModel.from_pretrained(encoder.path)"
        )
    family_for(model.config, "this model")
    if _task_head(model) not in KINDS:
        raise EncoderError(
            f"a {type(model).__name__} has no head that can be exported: give its base_model"
        )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ArtifactError(f"{folder} is not empty: give a new or empty folder")
    if not isinstance(substitute, ConstantMatrices | Tensor | np.ndarray):
        raise SpecError(
            f"substitute is {shown(substitute)}: give matrices, papa.constants(encoder, 'zeros') "
            "or papa.average(encoder, texts)"
        )


def _config_of(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    heads: Sequence[Head],
    matrices: ConstantMatrices,
    pairs: bool,
    study: dict[str, Any],
) -> ConstantHeadsConfig:
    """Return the configuration of the exported model."""
    layers, _, slots, _ = matrices.matrices.shape
    tokens = special_tokens_of(tokenizer)
    placement = "layout"
    if matrices.special is not None and 0 not in matrices.special:
        placement = "ends" if matrices.has_end_slot else "positions"
    counts_slots = placement == "layout" and not _task_head(model)
    base = model.config.to_dict()
    # It may be a folder of this machine.
    base.pop("_name_or_path", None)
    class_settings = {name: base.pop(name, None) for name in CLASS_SETTINGS}
    return ConstantHeadsConfig(
        base=base,
        heads=[[head for layer, head in heads if layer == number] for number in range(layers)],
        slots=slots,
        separators=tokens.between if pairs else 0,
        placement=placement,
        positions="slots" if counts_slots else "tokens",
        study=study,
        pad_token_id=tokens.pad,
        sep_token_id=tokens.sep,
        hidden_size=model.config.hidden_size,
        **class_settings,
    )


def _model_card(model: PreTrainedModel, config: ConstantHeadsConfig, heads: int) -> ModelCard:
    """Return the card of an exported model that has so many heads."""
    family = family_for(model.config, "this model")
    base_name = str(config.study.get("base") or model.name_or_path or type(model).__name__)
    if Path(base_name).is_absolute() or Path(base_name).exists():
        base_name = Path(base_name).name
    counts_padding = family.padding is None or family.prepare is not None
    return ModelCard.from_template(
        ModelCardData(library_name="transformers", tags=["papa-attention"]),
        str(Path(__file__).with_name("export.md.j2")),
        name=config.study.get("encoder") or Path(base_name).name,
        base=base_name,
        heads=heads,
        config=config,
        is_moved=config.positions == "slots" and counts_padding,
    )
