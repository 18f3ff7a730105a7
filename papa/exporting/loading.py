"""Load an exported encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from papa.encoders.encoder import Encoder
from papa.encoders.precision import check_device, check_int8
from papa.encoders.supported import family_of
from papa.errors import ArtifactError, PapaError, in_one_line
from papa.exporting.classifier import Classifier
from papa.exporting.document import (
    CLASSIFIER,
    CONFIGURATION,
    CONSTANTS,
    WEIGHTS,
    read_document,
)
from papa.exporting.model import ExportedEncoder
from papa.exporting.placement import InputLayout
from papa.exporting.stored import restored_constants, with_all_rows
from papa.spec import ConstantsKind
from papa.spec.orders import Head


def load_exported(
    folder: str | Path, device: str | torch.device = "cpu", *, int8: bool = False
) -> ExportedEncoder:
    """Load what ``papa export`` wrote; nothing is downloaded, no code of the folder is run.

    Args:
        folder: the exported folder.
        device: where it shall run.
        int8: compute its layers' linear maps in 8 bits, on a CPU: faster and a little less exact,
            as the card of an export with ``--int8`` says. Weights are rounded here; the folder
            stays as it is.

    Raises:
        ArtifactError: the folder is no export, incomplete, damaged, or its parts do not fit each
            other.
        EncoderError: this version of papa does not support its architecture.
        SpecError: there is no such device, or int8 is asked for elsewhere than on a CPU.
    """
    check_device(device)
    if int8:
        check_int8(device)
    folder = Path(folder)
    document = read_document(folder)
    try:
        layout = InputLayout.read(document.layout)
        encoder = Encoder(_model(folder, document.heads, document.constants), device, int8=int8)
        constants = restored_constants(
            _tensors(folder / CONSTANTS),
            document.heads,
            (encoder.layers, encoder.heads),
            layout,
            document.constants,
        )
        tokenizer = _tokenizer(folder, layout, encoder)
        classifier = None
        if document.classifier:
            weights = _tensors(folder / CLASSIFIER)
            classifier = Classifier.read(document.classifier, weights, encoder, layout.slots or 0)
        return ExportedEncoder(
            encoder, constants, document.heads, layout, tokenizer, document, classifier, folder
        )
    except PapaError:
        raise
    except Exception as error:  # The libraries believe whatever the files say.
        raise ArtifactError(
            f"{folder} cannot be loaded, its parts do not fit each other ({in_one_line(error)}): "
            "export the encoder again"
        ) from None


def _model(folder: Path, heads: Sequence[Head], kind: ConstantsKind) -> PreTrainedModel:
    """The model with its weights; rows that were left out are 0."""
    config = AutoConfig.from_pretrained(folder / CONFIGURATION, local_files_only=True)
    with torch.device("meta"):
        architecture = AutoModel.from_config(config)
    family = family_of(config.model_type)
    weights = with_all_rows(architecture, heads, kind, _tensors(folder / WEIGHTS))
    # The pooler is dropped; zeros spare transformers' report of weights that are missing.
    unused = {
        name: torch.zeros(like.shape)
        for name, like in architecture.state_dict().items()
        if name not in weights
    }
    return type(architecture).from_pretrained(
        None,
        config=config,
        state_dict={**unused, **weights},
        attn_implementation=family.attention_implementation if family else "eager",
        dtype=torch.float32,
    )


def _tokenizer(folder: Path, layout: InputLayout, encoder: Encoder) -> PreTrainedTokenizerBase:
    tokenizer = AutoTokenizer.from_pretrained(
        folder, config=encoder.config, local_files_only=True, use_fast=True
    )
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    tokenizer.model_max_length = layout.longest_input
    # As in the study: a separator spelled in a text is text.
    tokenizer.split_special_tokens = True
    return tokenizer


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{path} cannot be read ({error}): export the encoder again") from None
