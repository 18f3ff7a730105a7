"""A model with the native head that a task asks for: which class loads it, and on which device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from papa.errors import EncoderError
from papa.models.files import embeds_by, read_configuration_file
from papa.models.reference import EncoderReference, check_device, check_precision
from papa.spec import TaskSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_TEXT_CLASSIFIER = "AutoModelForSequenceClassification"
_TOKEN_CLASSIFIER = "AutoModelForTokenClassification"
_LANGUAGE_MODELS = {"mlm": "AutoModelForMaskedLM", "causal": "AutoModelForCausalLM"}


@dataclass(frozen=True)
class ModelReference:
    """A model that a worker loads.

    Attributes:
        encoder: The model, by name and content.
        native_class: The class of transformers that loads it with its native head
            (``class_of_native_head``); "" loads the plain encoder. It follows from files that lie
            elsewhere on another machine of a cluster.
    """

    encoder: EncoderReference
    native_class: str = ""


def class_of_native_head(task: TaskSpec, reference: EncoderReference) -> str:
    """Return the class of transformers that loads the head that a task asks for."""
    if task.of_embeddings:
        other_embeddings = embeds_by(Path(reference.folder))
        if other_embeddings:
            raise EncoderError(
                f"'{reference.name}': {other_embeddings}, and PAPA measures means over tokens: "
                "measure it in your own loop, with papa.ablated"
            )
        return "AutoModel"
    if task.kind in _LANGUAGE_MODELS:
        return _LANGUAGE_MODELS[task.kind]
    if task.kind == "words":
        return _TOKEN_CLASSIFIER
    subject = f"encoder '{reference.name}'"
    configuration, _ = read_configuration_file(Path(reference.folder), subject)
    architecture = str((configuration.get("architectures") or ["nothing"])[0])
    if task.columns.label is None and architecture.endswith("ForTokenClassification"):
        return _TOKEN_CLASSIFIER
    if task.columns.label is None and not architecture.endswith("ForSequenceClassification"):
        raise EncoderError(
            f"{subject} has no head that gives classes ({architecture}): measure it by nearest_10, "
            "or with kind: mlm"
        )
    return _TEXT_CLASSIFIER


def load_native_model(
    reference: EncoderReference, native_class: str, device: str = "cpu"
) -> PreTrainedModel:
    """Load a model with its native head, by its class in transformers, in eval mode."""
    import torch

    from papa.models.weights import load_model

    check_device(device)
    check_precision(reference.precision, device)
    dtype = torch.bfloat16 if reference.precision == "bfloat16" else torch.float32
    model = load_model(reference, head=native_class, dtype=dtype)
    return cast("PreTrainedModel", model.eval().to(device))
