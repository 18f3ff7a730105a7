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
_REFUSED = "quantization_config", "attn_implementation", "_attn_implementation", "use_kernels"
"""Settings with which transformers would compute other attention than PAPA measures."""


def family_of(model_type: str) -> Family | None:
    """The family whose configurations carry ``model_type``; None where no family does."""
    return next((family for family in FAMILIES if model_type in family.model_types), None)


def family_for(config: Any, what: str) -> Family:
    """The family of a configuration; EncoderError where PAPA does not measure such models."""
    family = family_of(config.model_type)
    if family is None:
        raise _unsupported(what, config.model_type)
    if getattr(config, "is_decoder", False):
        raise EncoderError(f"{what} is causal (is_decoder): PAPA measures encoders")
    if reason := family.refuse(config):
        raise EncoderError(f"{what} is not supported: {reason}")
    return family


def _unsupported(what: str, kind: object) -> EncoderError:
    known = ", ".join(kind for family in FAMILIES for kind in family.model_types)
    return EncoderError(f"{what}: architecture {shown(kind)} is not supported: use one of {known}")


def read_configuration(folder: Path, what: str) -> tuple[Any, str]:
    """The configuration of the encoder in ``folder``, as transformers reads it, and the SHA-256 of
    its file.
    """
    path = folder / CONFIGURATION
    document, digest = read_configuration_file(folder, what)
    kind = document.get("model_type")
    if not isinstance(kind, str) or (family_of(kind) is None and kind not in DECODERS):
        raise _unsupported(f"{what}: {path}", kind)
    for name, value in document.items():
        most = 1_000 if "layers" in name else 10_000_000
        if isinstance(value, int) and abs(value) > most:
            raise EncoderError(
                f"{path}: {shortened(name)} is {shown(value)}, at most {most:,} is read: correct it"
            )
        if name in _REFUSED and value:
            raise EncoderError(
                f"{path}: {name} is {shown(value)}, and PAPA computes attention itself, on plain "
                "weights: remove it, or save the encoder without it"
            )
        if name == "position_embedding_type" and value != "absolute":
            raise EncoderError(
                f"{path}: {name} is {shown(value)}, which transformers does not compute any more: "
                "use an encoder with absolute positions"
            )
    from transformers import CONFIG_MAPPING

    try:
        return CONFIG_MAPPING[kind].from_dict(document), digest
    except Exception as error:  # transformers believes whatever the file says.
        raise EncoderError(
            f"{path} cannot be read ({in_one_line(error)}): correct it, or get it again"
        ) from None
