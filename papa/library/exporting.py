"""Writing an encoder with constant heads as a folder of ``transformers``, with a model card."""

from __future__ import annotations

import copy
from collections.abc import Mapping
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
from papa.library.ablating import Heads, checked_heads
from papa.library.substitutes import substitute_for
from papa.models.supported import family_for
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
    if not isinstance(model, PreTrainedModel):
        raise EncoderError(
            f"model is a {type(model).__name__}, expected a model of transformers, such as "
            "AutoModel.from_pretrained(encoder.path)"
        )
    head = "".join(type(model).__name__.partition("For")[1:])
    family = family_for(model.config, "this model")
    base = model.config.to_dict()
    # It may be a folder of this machine.
    base.pop("_name_or_path", None)
    if head not in KINDS:
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
    matrices = cast("ConstantMatrices", substitute_for(model, substitute))
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
    counts_slots = placement == "layout" and not head
    config = ConstantHeadsConfig(
        base=base,
        heads=[
            [number for head_layer, number in chosen if head_layer == layer]
            for layer in range(layers)
        ],
        slots=slots,
        separators=tokens.between if pairs else 0,
        placement=placement,
        positions="slots" if counts_slots else "tokens",
        study=dict(study or {}),
        pad_token_id=tokens.pad,
        sep_token_id=tokens.sep,
        hidden_size=model.config.hidden_size,
        **{name: base.pop(name, None) for name in CLASS_SETTINGS},
    )
    exported = KINDS[head](config, model, matrices.matrices).to(model.device, model.dtype).eval()
    tokenizer.model_max_length = min(slots, tokenizer.model_max_length)
    # As in a study, a special token that a text spells is text; but masks are given so.
    tokenizer.split_special_tokens = head != "ForMaskedLM"
    tokenizer.init_kwargs["split_special_tokens"] = tokenizer.split_special_tokens
    base_name = str(config.study.get("base") or model.name_or_path or type(model).__name__)
    if Path(base_name).is_absolute() or Path(base_name).exists():
        base_name = Path(base_name).name
    name = config.study.get("encoder") or Path(base_name).name
    card = ModelCard.from_template(
        ModelCardData(library_name="transformers", tags=["papa-attention"]),
        str(Path(__file__).with_name("export.md.j2")),
        name=name,
        base=base_name,
        heads=layers * count,
        config=config,
        is_moved=counts_slots and (family.padding is None or family.prepare is not None),
    )
    with scratch_beside(folder) as scratch:
        exported.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        card.save(scratch / "README.md")
        scratch.rename(folder)
