"""Write an encoder with constant heads as a folder, and again after its weights were trained."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from papa.attention.replacement import Constants
from papa.corpora.split import TokenisedSplit
from papa.encoders.files import tokenizer_files
from papa.encoders.precision import check_int8
from papa.encoders.reference import EncoderReference
from papa.encoders.weights import load_model
from papa.errors import ArtifactError, SpecError
from papa.exporting.card import model_card
from papa.exporting.classifier import OwnClassifier, TrainedProbe, agreement
from papa.exporting.document import (
    CARD,
    CLASSIFIER,
    CONFIGURATION,
    CONSTANTS,
    DOCUMENT,
    FOR_OTHERS,
    WEIGHTS,
    ExportDocument,
)
from papa.exporting.loading import load_exported
from papa.exporting.measuring import (
    Scored,
    check_same,
    measure_fidelity,
    measure_int8,
    measure_speed,
    states_of,
)
from papa.exporting.model import ExportedEncoder
from papa.exporting.onnx import ONNX, ONNX_INT8, check_onnx, write_onnx
from papa.exporting.placement import InputLayout
from papa.exporting.stored import (
    needed_weights,
    stored_constants,
    without_constant_heads,
)
from papa.progress import Progress, ignore_progress
from papa.spec.orders import Head
from papa.storage.atomic import scratch_beside


def export_encoder(
    reference: EncoderReference,
    constants: Constants,
    heads: Sequence[Head],
    layout: InputLayout,
    folder: Path,
    *,
    examples: TokenisedSplit | None = None,
    study: Mapping[str, Any] | None = None,
    score: Mapping[str, Any] | None = None,
    device: str = "cpu",
    onnx: bool = False,
    int8: Scored | None = None,
    classifier: TrainedProbe | OwnClassifier | None = None,
    progress: Progress = ignore_progress,
) -> ExportDocument:
    """Write ``folder``, whole or not at all: weights, constants, tokenizer, ``papa.json`` and a
    model card.

    What was written is loaded again before it appears. With ``examples`` it is compared with the
    encoder under ``replaced``, and its speed and embeddings with the original's.

    Args:
        constants: of all its heads: matrices by slot, weights by distance, or outputs.
        heads: the constant ones, one at least.
        examples: real inputs in that layout.
        study: the cell of the study, for the record.
        score: of that cell (``papa.exporting.gains.study_score``).
        onnx: also write ``model.onnx``, compared with the exported encoder and timed against the
            original on ``examples``.
        int8: also measure 8 bits on ``examples``, alone and with the constant heads, scored by
            this; with ``onnx`` also write ``model.int8.onnx``.
        classifier: a probe or an own head that comes along, compared with the study's answers on
            ``examples``.
    """
    check_free(folder)
    if int8 is not None:
        check_int8(device)
    heads = sorted((int(layer), int(head)) for layer, head in heads)
    original = _original(reference)
    if onnx:
        tensors = *original.state_dict().values(), constants.values
        check_onnx(original.config, layout, sum(4 * tensor.numel() for tensor in tensors))
    told = ("name", "revision", "digest", "model_type", "layers", "heads")
    with written_aside(folder) as scratch:
        _save(original, reference, constants, heads, scratch)
        if classifier is not None:
            _save_weights(classifier.probe.state_dict(), scratch / CLASSIFIER)
        document = ExportDocument(
            encoder={name: getattr(reference, name) for name in told},
            layout=layout.written(),
            heads=tuple(heads),
            constants=constants.kind,
            study=dict(study or {}),
            score=score,
            speed=None,
            fidelity=None,
            size={
                "original_weights": sum(own.nbytes for own in needed_weights(original).values()),
                "weights": (scratch / WEIGHTS).stat().st_size,
                "constants": (scratch / CONSTANTS).stat().st_size,
            },
            classifier=None if classifier is None else classifier.described(),
        )
        document.write(scratch)
        exported = load_exported(scratch, device)
        examples = examples if examples is not None and len(examples) else None
        if examples is not None:
            check_same(exported, reference, constants, examples)
            if classifier is not None:
                same = agreement(exported, classifier, examples, layout)
                document = replace(document, classifier=classifier.described() | same)
            original = original.float().to(device)
            speed = measure_speed(original, exported, examples, progress)
            states = states_of(original), states_of(exported)
            document = replace(document, fidelity=measure_fidelity(*states, examples, layout))
            if int8 is not None:
                both, single = (
                    load_exported(scratch, int8=True),
                    replace(reference, precision="float32"),
                )
                speed["int8"] = measure_int8(original, both, single, examples, int8, progress)
            document = replace(document, speed=speed)
        if onnx:
            graph = write_onnx(exported, original, scratch, examples, int8)
            if document.speed is not None:
                document = replace(document, speed={**document.speed, "onnx": graph})
        (scratch / CARD).write_text(model_card(document))
        document.write(scratch)
    return document


def save_exported(model: ExportedEncoder, folder: str | Path) -> None:
    """Write what ``load_exported`` gave, with its weights as they are now, whole or not at all.

    Where they were trained since, scores, embeddings and graphs of the folder that it came from are
    left out: they are of other weights.

    Args:
        model: its folder must still be there.
        folder: must not exist, or be empty.

    Raises:
        ArtifactError: the folder is taken or cannot be written, or there is none it came from.
        SpecError: the model is something else.
    """
    if not isinstance(model, ExportedEncoder):
        raise SpecError(
            f"model is a {type(model).__name__}, expected what papa.load_exported gives: load an "
            "exported folder with it"
        )
    source, document, folder = model.folder, model.document, Path(folder)
    if source is None or document is None or not (source / DOCUMENT).is_file():
        raise ArtifactError(
            f"the folder that this encoder was loaded from is not there ({source}): its tokenizer "
            "and constants are copied from it"
        )
    check_free(folder)
    files = {WEIGHTS: model.weights()}
    if model.classifier is not None:
        files[CLASSIFIER] = model.classifier.probe.state_dict()
    tuned = not all(_same(load_file(source / name), found) for name, found in files.items())
    left_out = {DOCUMENT, *files, CARD, ONNX, ONNX_INT8} if tuned else {DOCUMENT}
    with written_aside(folder) as scratch:
        for path in source.iterdir():
            if path.is_file() and path.name not in left_out:
                shutil.copyfile(path, scratch / path.name)
        if tuned:
            for name, weights in files.items():
                _save_weights(weights, scratch / name)
            known = ("timings", "left_out", "threads", "device", "attention")
            classifier, speed = document.classifier, document.speed
            document = replace(
                document,
                tuned=True,
                score=None,
                fidelity=None,
                speed=speed and {name: speed[name] for name in known},
                classifier=classifier
                and {
                    name: value
                    for name, value in classifier.items()
                    if name not in ("rows", "same")
                },
            )
            (scratch / CARD).write_text(model_card(document))
        document.write(scratch)
        load_exported(scratch)


def _same(before: dict[str, Tensor], now: dict[str, Tensor]) -> bool:
    return before.keys() == now.keys() and all(
        torch.equal(before[name], now[name].cpu()) for name in before
    )


def check_free(folder: Path) -> None:
    """Refuse a folder that holds anything."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        what = "is not empty" if folder.is_dir() else "is a file"
        raise ArtifactError(f"{folder} {what}: give a new or an empty folder with --to")


def _original(reference: EncoderReference) -> nn.Module:
    """The unmodified model in its stored precision, with the fastest attention that transformers
    has for it.
    """
    folder, what = Path(reference.folder), f"encoder '{reference.name}'"
    try:
        model = load_model(folder, what, attention="sdpa")
    except ValueError:
        model = load_model(folder, what)
    return model.eval().requires_grad_(False)


def _save(
    original: nn.Module,
    reference: EncoderReference,
    constants: Constants,
    heads: Sequence[Head],
    folder: Path,
) -> None:
    shutil.copyfile(Path(reference.folder) / "config.json", folder / CONFIGURATION)
    (folder / "config.json").write_text(json.dumps(FOR_OTHERS) + "\n")
    for path in tokenizer_files(Path(reference.folder)):
        shutil.copyfile(path, folder / path.name)
    weights = without_constant_heads(original, heads, constants.kind)
    _save_weights(weights, folder / WEIGHTS)
    _save_weights(stored_constants(constants, heads), folder / CONSTANTS)


def _save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    kept = {name: tensor.cpu().contiguous() for name, tensor in weights.items()}
    save_file(kept, path, metadata={"format": "pt"})
    # safetensors makes files that their owner alone may read.
    shutil.copymode(path.parent / CONFIGURATION, path)


@contextmanager
def written_aside(folder: Path) -> Iterator[Path]:
    """A scratch folder that is renamed to ``folder`` on success and removed on an error."""
    folder = Path(os.path.abspath(folder))
    try:
        with scratch_beside(folder) as scratch:
            yield scratch
            check_free(folder)
            scratch.rename(folder)
    except (OSError, SafetensorError) as error:
        if isinstance(error, OSError) and error.errno is None:
            raise
        reason = getattr(error, "strerror", None) or error
        raise ArtifactError(
            f"{folder} cannot be written ({reason}): free the disk or give another folder with --to"
        ) from None
