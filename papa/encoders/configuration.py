"""An encoder's config.json: read, and checked before transformers believes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papa.encoders.decoders import DECODERS
from papa.encoders.files import CONFIGURATION, read_configuration_file
from papa.encoders.supported import FAMILIES, family_of
from papa.errors import EncoderError, in_one_line, shortened, shown

_MOST_LAYERS = 1_000
_MOST = 10_000_000
"""Of anything else that a configuration counts."""
_CHANGES_WEIGHTS = (
    "quantization_config",
    "attn_implementation",
    "_attn_implementation",
    "use_kernels",
)
"""Settings with which transformers would compute other attention than PAPA measures."""


def supported() -> str:
    """Return the supported architectures, as a message lists them."""
    return ", ".join(kind for family in FAMILIES for kind in family.model_types)


def read_configuration(folder: Path, what: str) -> Any:
    """Return the configuration of the encoder in ``folder``, as transformers reads it."""
    path = folder / CONFIGURATION
    document = read_configuration_file(folder, what)
    kind = document.get("model_type", "unknown")
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
    for name in _CHANGES_WEIGHTS:
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
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        counts = {
            "layers": config.num_hidden_layers,
            "attention heads": config.num_attention_heads,
            "width": config.hidden_size,
            "words in its vocabulary": config.vocab_size,
        }
    except Exception as error:  # transformers believes whatever the file says.
        raise EncoderError(
            f"{path} cannot be read ({in_one_line(error)}): correct it, or get it again"
        ) from None
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise EncoderError(
                f"{path} describes an encoder with {shown(count)} {name}, expected a number above "
                "0: correct it"
            )
    if kind not in DECODERS and config.hidden_size % config.num_attention_heads:
        raise EncoderError(
            f"{path}: a width of {config.hidden_size} cannot be split into "
            f"{config.num_attention_heads} attention heads: correct it"
        )
    return config
