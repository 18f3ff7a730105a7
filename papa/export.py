"""Write a model with constant heads as a folder, with a card that says what it gains."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
from huggingface_hub import ModelCard, ModelCardData
from torch.utils.benchmark import Timer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from papa.ablation.substitutes import ByPosition
from papa.attention.outputs import ConstantOutputs
from papa.corpora.layout import pair_capacity
from papa.corpora.tokens import special_tokens_of
from papa.errors import ArtifactError, EncoderError, SpecError
from papa.exported import KINDS, ConstantHeadsConfig, ConstantHeadsModel, check_family
from papa.library.ablating import Heads, heads_by_layer, substitute_for
from papa.storage.atomic import scratch_beside

ROUNDS, SECONDS = 5, 0.1
"""How often the original and the export are timed in turn, and for how long each."""


def export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    heads: Heads,
    constants: Any,
    folder: str | Path,
    *,
    pairs: bool | None = None,
    positions: Literal["slots", "tokens"] | None = None,
    study: Mapping[str, Any] | None = None,
) -> None:
    """Write a model with constant heads as a folder that ``AutoModel``, ``pipeline`` and
    ``SentenceTransformer`` load where ``papa`` is imported; its card says what it gains.

    Examples:
        >>> import papa, tempfile
        >>> from transformers import AutoModel
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> average = papa.average(encoder, ["a fine film", "rather dull"], progress=False)
        >>> stock, to = AutoModel.from_pretrained(encoder.reference.folder), tempfile.mkdtemp()
        >>> papa.export(stock, encoder.tokenizer, {0: [1, 2], 3: [0]}, average, to)
        >>> type(AutoModel.from_pretrained(to)).__name__
        'ConstantHeadsModel'

    Args:
        model: of transformers; its own head comes along.
        tokenizer: its own; texts are cut at its ``model_max_length`` where S slots hold more.
        heads: as of ``papa.ablated``.
        constants: as of ``papa.average``, matrices [layers, heads, slots, slots], or a study's
            constant outputs.
        folder: must not exist, or be empty.
        pairs: whether an input has two texts; None does as the texts of ``constants``.
        positions: whether a token's absolute position is its slot or its number; None does as a
            study: its number where the model has its own head.
        study: what the heads were measured at, for the card.

    Raises:
        EncoderError: the model cannot be exported.
        SpecError, ArtifactError: heads or constants do not fit it, or the folder is taken.
    """
    check_family(model.config)
    folder, head = Path(folder), "".join(type(model).__name__.partition("For")[1:])
    if (kind := KINDS.get(f"AutoModel{head}")) is None:
        raise EncoderError(f"a {type(model).__name__} has no head to export: give its base_model")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ArtifactError(f"{folder} holds something: give a new or an empty folder")
    if isinstance(constants, ConstantOutputs):
        values, places, slots = constants.outputs, constants.index, constants.index.shape[1]
    else:
        found, places = substitute_for(model, constants), None
        if not isinstance(found, ByPosition):
            raise SpecError("the constants are no matrices: give them as papa.average does")
        values, slots = found.matrices, found.matrices.shape[-1]
    layers, count = values.shape[:2]
    by_layer = heads_by_layer(heads, [count] * layers)
    if not by_layer:
        raise SpecError("no head is to be constant: give one or more")
    tokens, tokenizer = special_tokens_of(tokenizer), copy.deepcopy(tokenizer)
    if pairs is None:
        pairs = len(getattr(constants, "special", None) or ()) > 2
    single = min(slots, tokenizer.model_max_length) - 2
    longest = list(pair_capacity(tokens, slots)) if pairs else [single]
    base, between = model.config.to_dict(), tokens.between if pairs else 0
    classes = {name: base.pop(name, None) for name in ("id2label", "label2id", "problem_type")}
    config = ConstantHeadsConfig(
        base=base,
        heads=[by_layer.get(layer, []) for layer in range(layers)],
        shape=list(values.shape[2:]),
        slots=slots,
        longest=longest,
        separators=between,
        positions=positions or ("tokens" if head else "slots"),
        study=dict(study or {}),
        pad_token_id=tokens.pad,
        sep_token_id=tokens.sep,
        hidden_size=model.config.hidden_size,
        **classes,
    )
    exported = kind(config).to(model.device, model.dtype).eval()
    exported.take(model, values, places)
    tokenizer.model_max_length = sum(longest) + 2 + between
    # As in a study, a special token that a text spells is text; but masks are given so.
    tokenizer.split_special_tokens = head != "ForMaskedLM"
    tokenizer.init_kwargs["split_special_tokens"] = tokenizer.split_special_tokens
    original = Path(model.name_or_path or "")
    card = ModelCard.from_template(
        ModelCardData(
            library_name="transformers",
            base_model=None if original.exists() else str(original),
            tags=["papa-attention"],
        ),
        str(Path(__file__).with_name("export.md.j2")),
        name=original.name or type(model).__name__,
        constant=sum(map(len, config.heads)),
        heads=layers * count,
        config=config,
        speed=speed(model, exported),
        device=f"{model.device.type} with {torch.get_num_threads()} threads",
    )
    with scratch_beside(folder) as scratch:
        exported.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        card.save(scratch / "README.md")
        scratch.rename(folder)


@torch.inference_mode()
def speed(original: PreTrainedModel, exported: ConstantHeadsModel) -> list[dict[str, float]]:
    """How much faster an export is at three sizes: the median ratio of rounds in turn, the least
    and the largest; ``seconds`` are those of the original.
    """
    config, found = exported.config, list[dict[str, float]]()
    between = config.separators
    for texts, part in ((1, 4), (8, 2), (16, 1)):
        tokens = max(config.slots // part, 4 + between)
        ids = torch.full((texts, tokens), int(config.sep_token_id == 0), device=original.device)
        ids[:, tokens // 2 : tokens // 2 + between] = ids[:, -1] = config.sep_token_id
        timers = [
            Timer(
                "model(input_ids=ids, attention_mask=mask)",
                globals={"model": model, "ids": ids, "mask": torch.ones_like(ids)},
                num_threads=torch.get_num_threads(),
            )
            for model in (original, exported)
        ]
        rounds = [
            [timer.blocked_autorange(min_run_time=SECONDS).median for timer in timers]
            for _ in range(ROUNDS)
        ]
        ratios = [before / after for before, after in rounds]
        seconds = min(before for before, _ in rounds)
        sizes = {"texts": texts, "tokens": tokens, "seconds": seconds}
        found.append({**sizes, "ratio": median(ratios), "low": min(ratios), "high": max(ratios)})
    return found
