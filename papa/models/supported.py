"""The supported encoder families, and an encoder's config.json, checked before transformers
believes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papa.errors import EncoderError, in_one_line, shortened, shown
from papa.models.bert import ALBERT, BERT, DISTILBERT, ELECTRA, MODERNBERT, MPNET, ROBERTA
from papa.models.deberta import DEBERTA, DEBERTA_V2
from papa.models.family import Family
from papa.models.files import CONFIGURATION, read_configuration_file
from papa.models.reference import DECODERS

_OF_BERT = BERT, ROBERTA, ELECTRA, DISTILBERT, ALBERT
FAMILIES: tuple[Family, ...] = (*_OF_BERT, MPNET, DEBERTA, DEBERTA_V2, MODERNBERT)
_MOST_LAYERS = 1_000
_MOST = 10_000_000
"""Of anything else that a configuration counts."""
_REFUSED = "quantization_config", "attn_implementation", "_attn_implementation", "use_kernels"
"""Settings with which transformers would compute other attention than PAPA measures."""


def family_of(model_type: str) -> Family | None:
    """The family whose configurations carry ``model_type``; None where no family does."""
    return next((family for family in FAMILIES if model_type in family.model_types), None)


def supported() -> str:
    """The supported architectures, as a message lists them."""
    return ", ".join(kind for family in FAMILIES for kind in family.model_types)


def read_configuration(folder: Path, what: str) -> tuple[Any, str]:
    """The configuration of the encoder in ``folder``, as transformers reads it, and the SHA-256 of
    its file.
    """
    path = folder / CONFIGURATION
    document, digest = read_configuration_file(folder, what)
    if "model_type" not in document:
        raise EncoderError(
            f"{path} has no model_type, which says the architecture: add it, such as "
            '"model_type": "bert"'
        )
    kind = document["model_type"]
    if not isinstance(kind, str) or (family_of(kind) is None and kind not in DECODERS):
        raise EncoderError(
            f"{what}: architecture {shown(kind)} is not supported: use one of {supported()}"
        )
    for name, value in document.items():
        most = _MOST_LAYERS if "layers" in name else _MOST
        if isinstance(value, int) and abs(value) > most:
            raise EncoderError(
                f"{path}: {shortened(name)} is {shown(value)}, at most {most:,} is read: correct it"
            )
    for name in _REFUSED:
        if document.get(name):
            raise EncoderError(
                f"{path}: {name} is {shown(document[name])}, and PAPA computes attention itself, "
                "on plain weights: remove it, or save the encoder without it"
            )
    positions = document.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise EncoderError(
            f"{path}: position_embedding_type is {shown(positions)}, which transformers does not "
            "compute any more: use an encoder with absolute positions"
        )
    from transformers import CONFIG_MAPPING

    try:
        config = CONFIG_MAPPING[kind].from_dict(document)
        layers, heads = config.num_hidden_layers, config.num_attention_heads
        width, words = config.hidden_size, config.vocab_size
    except Exception as error:  # transformers believes whatever the file says.
        raise EncoderError(
            f"{path} cannot be read ({in_one_line(error)}): correct it, or get it again"
        ) from None
    counts = (layers, "layers"), (heads, "attention heads"), (width, "width"), (words, "words")
    for count, name in counts:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise EncoderError(
                f"{path} describes an encoder with {shown(count)} {name}, expected a number above "
                "0: correct it"
            )
    if kind not in DECODERS and width % heads:
        raise EncoderError(
            f"{path}: a width of {width} cannot be split into {heads} attention heads: correct it"
        )
    return config, digest
