"""Which files make an encoder, by the names that ``save_pretrained`` and the hub give them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from papa.errors import EncoderError

CONFIGURATION = "config.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spm.model",
    "sentencepiece.bpe.model",
    "spiece.model",
)
SAFETENSORS = "model.safetensors"
_PICKLED = "pytorch_model.bin"
WEIGHT_CHOICES = (
    (SAFETENSORS,),
    (f"{SAFETENSORS}.index.json", "model-*-of-*.safetensors"),
    (_PICKLED,),
    (f"{_PICKLED}.index.json", "pytorch_model-*-of-*.bin"),
)
"""Patterns of the files that hold an encoder's weights, the first that is there is taken; files with other names are
adapters, other precisions or other frameworks' weights."""


@dataclass(frozen=True)
class WeightFiles:
    """The files that hold an encoder's weights: one, or its shards.

    Attributes:
        paths: sorted.
        pickled: whether they are PyTorch's pickles and not safetensors.
    """

    paths: tuple[Path, ...]
    pickled: bool


def weight_files(folder: Path, what: str) -> WeightFiles:
    """The files that hold the weights of the encoder in ``folder``.

    Args:
        folder: with the encoder's files.
        what: the encoder, for messages.

    Raises:
        EncoderError: there are none, or an index names files that are not there.
    """
    for name, pickled in ((SAFETENSORS, False), (_PICKLED, True)):
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return WeightFiles((folder / name,), pickled)
        if index.is_file():
            return WeightFiles(_shards(index, what), pickled)
    raise no_weights(what, str(folder), [path.name for path in folder.iterdir()])


def has_weights(folder: Path) -> bool:
    """Whether the encoder's weights, whole or all shards of them, are in ``folder``."""
    try:
        return bool(weight_files(folder, "").paths)
    except EncoderError:
        return False


def no_weights(what: str, place: str, files: list[str]) -> EncoderError:
    """The error that says which files are there instead."""
    found = ", ".join(sorted(name for name in files if name[0] != ".")) or "nothing"
    return EncoderError(
        f"{what} has no {SAFETENSORS} and no {_PICKLED}, whole or in shards, in {place} (found {found}): "
        "use a revision that has one of them"
    )


def _shards(index: Path, what: str) -> tuple[Path, ...]:
    try:
        names = set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError):
        raise EncoderError(f"{what}: {index} is damaged: it maps no weights to files") from None
    for name in sorted(names, key=str):
        # A name from outside must not lead out of the folder.
        if not isinstance(name, str) or Path(name).name != name or not (index.parent / name).is_file():
            raise EncoderError(f"{what}: {index.name} names {name}, which is not in {index.parent}: get it again")
    return tuple(index.parent / name for name in sorted(names))
