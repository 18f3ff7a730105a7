"""``papa.json``: what an exported folder holds, for whom, and the digest of every file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from papa.errors import ArtifactError, shown
from papa.storage.artifacts import sha256_of_file
from papa.storage.metadata import DIGEST, is_plain, is_signed, signed

FORMAT = 5
DOCUMENT = "papa.json"
WEIGHTS = "model.safetensors"
CONSTANTS = "constants.safetensors"
CLASSIFIER = "classifier.safetensors"
CONFIGURATION = "encoder_config.json"
"""The encoder's own configuration. It is not called config.json, as no other library may load the
weights: rows are left out of them, and the heads would not be constant."""
FOR_OTHERS = {
    "model_type": "bert",
    "hidden_act": "an export of PAPA: load it with papa.load_exported(folder)",
}
"""What config.json says instead: transformers makes no model of it, and the KeyError of an unknown
activation is this sentence alone."""
CARD = "README.md"


@dataclass(frozen=True)
class ExportDocument:
    """What ``papa.json`` says.

    Attributes:
        encoder: the source encoder: name, revision, digest, model_type, layers, heads.
        layout: where tokens belong (``InputLayout.written``).
        heads: the constant heads as [layer, head], in the order of the stored matrices.
        constants: the kind of the matrices.
        study: the cell of the study: name, encoder, task, constants, order, fraction; empty where
            there was none.
        score: of that cell, see ``papa.exporting.gains.study_score``; None where unknown.
        speed: measured when the folder was written; None where it was not.
        fidelity: of its embeddings to the original's, measured then too; None where it was not.
        size: bytes of weights and constants, and of the source encoder's weights.
        classifier: of what the probe that comes along tells classes (``papa.exporting.classifier``)
            and on how many validation rows as the study's; None where none does.
        tuned: whether its weights were trained after the export.
    """

    encoder: Mapping[str, Any]
    layout: Mapping[str, Any]
    heads: tuple[tuple[int, int], ...]
    constants: str
    study: Mapping[str, Any]
    score: Mapping[str, Any] | None
    speed: Mapping[str, Any] | None
    fidelity: Mapping[str, Any] | None
    size: Mapping[str, int]
    classifier: Mapping[str, Any] | None = None
    tuned: bool = False

    def write(self, folder: Path) -> None:
        """Write ``papa.json`` with the digests of all files in ``folder``; the last file to be
        written.
        """
        files = {
            str(path.relative_to(folder)): sha256_of_file(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != DOCUMENT
        }
        document = {
            "format": FORMAT,
            **vars(self),
            "heads": [list(head) for head in self.heads],
            "files": files,
        }
        (folder / DOCUMENT).write_text(
            json.dumps(signed(document), indent=1, ensure_ascii=False) + "\n"
        )


_VALID = TypeAdapter(ExportDocument)


def read_document(folder: Path) -> ExportDocument:
    """Check every file of an exported folder and read its document."""
    path = folder / DOCUMENT
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError(
            f"{folder} holds no exported encoder ({DOCUMENT} is missing): give a folder that 'papa "
            "export' wrote"
        ) from None
    except (OSError, ValueError, RecursionError):
        raise ArtifactError(f"{path} is damaged (not JSON): export the encoder again") from None
    version = content.get("format") if isinstance(content, dict) else None
    if version != FORMAT:
        raise ArtifactError(
            f"{path} has format {shown(version)}, this version of papa reads format {FORMAT}: "
            "export the encoder again"
        )
    try:
        if not is_signed(content):
            raise ArtifactError(
                f"{path} is damaged (its digest is not that of what it says): export the encoder "
                "again"
            )
        fields = {name: content[name] for name in ExportDocument.__dataclass_fields__}
        document, files = _VALID.validate_python(fields), dict(content["files"])
        if not all(
            is_plain(name) and re.fullmatch(DIGEST, digest) for name, digest in files.items()
        ):
            raise ValueError
        missing = [name for name in files if not (folder / name).is_file()]
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        raise ArtifactError(
            f"{path} is damaged (a field is missing or malformed): export the encoder again"
        ) from None
    needed = [WEIGHTS, CONSTANTS, CONFIGURATION, *([CLASSIFIER] if document.classifier else [])]
    for name, expected in {**dict.fromkeys(needed), **files}.items():
        if expected is None or name in missing:
            raise ArtifactError(
                f"{folder / name} is missing: copy the whole folder again, or export again"
            )
        digest = sha256_of_file(folder / name)
        if digest != expected:
            raise ArtifactError(
                f"{folder / name} is damaged (expected SHA-256 {expected[:12]}, found "
                f"{digest[:12]}): copy the folder again, or export again"
            )
    return document
