"""Write an encoder with constant heads as a folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from papa.attention.replacement import Constants
from papa.corpora.split import TokenisedSplit
from papa.encoders.files import TOKENIZER_FILES
from papa.encoders.precision import check_int8
from papa.encoders.reference import EncoderReference
from papa.encoders.weights import load_model
from papa.errors import ArtifactError
from papa.exporting.card import model_card
from papa.exporting.constants import check_fits, kind_of, stored
from papa.exporting.document import (
    CARD,
    CONFIGURATION,
    CONSTANTS,
    FOR_OTHERS,
    WEIGHTS,
    ExportDocument,
)
from papa.exporting.fidelity import measure_fidelity
from papa.exporting.int8 import Scored, measure_int8
from papa.exporting.loading import load_exported
from papa.exporting.model import ExportedEncoder
from papa.exporting.onnx import (
    ONNX,
    ONNX_INT8,
    Graphs,
    check_onnx,
    check_onnx_same,
    measure_onnx,
)
from papa.exporting.placement import InputLayout
from papa.exporting.sameness import check_same
from papa.exporting.speed import (
    measure_speed,
    states_of,
)
from papa.exporting.trained import OwnClassifier, TrainedProbe, agreement, save_classifier
from papa.exporting.trimming import needed_weights, without_constant_heads
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
        folder: must not exist, or be empty.
        examples: real inputs in that layout.
        study: the cell of the study, for the record.
        score: of that cell (``papa.exporting.card.study_score``).
        onnx: also write ``model.onnx``, compared with the exported encoder and timed against the
            original on ``examples``.
        int8: also measure 8 bits on ``examples``, alone and with the constant heads, scored by
            this; with ``onnx`` also write ``model.int8.onnx``.
        classifier: a probe or an own head that comes along, compared with the study's answers on
            ``examples``.

    Raises:
        ArtifactError: the folder is taken or cannot be written, no head is constant, the matrices
            do not fit, or what was written does not behave as the encoder under ``replaced``.
        EncoderError: the encoder has no ONNX form.
        SpecError: int8 is asked for elsewhere than on a CPU.
    """
    check_free(folder)
    if int8 is not None:
        check_int8(device)
    heads = sorted((int(layer), int(head)) for layer, head in heads)
    if not heads:
        raise ArtifactError(
            "no head is constant in this cell, so there is nothing to export: give a fraction "
            "below 1"
        )
    check_fits(constants, reference.layers, reference.heads, layout, reference.name)
    original = _original(reference)
    if onnx:
        bytes_needed = sum(
            4 * tensor.numel() for tensor in (*original.state_dict().values(), constants.values)
        )
        check_onnx(original.config, layout, bytes_needed)
    with written_aside(folder) as scratch:
        _save(original, reference, constants, heads, scratch)
        if classifier is not None:
            save_classifier(classifier.probe, scratch)
        document = ExportDocument(
            encoder={
                "name": reference.name,
                "revision": reference.revision,
                "digest": reference.digest,
                "model_type": reference.model_type,
                "layers": reference.layers,
                "heads": reference.heads,
            },
            layout=layout.written(),
            heads=tuple(heads),
            constants=kind_of(constants),
            study=dict(study or {}),
            score=score,
            speed=None,
            fidelity=None,
            size={
                "original_weights": sum(
                    tensor.nbytes for tensor in needed_weights(original).values()
                ),
                "weights": (scratch / WEIGHTS).stat().st_size,
                "constants": (scratch / CONSTANTS).stat().st_size,
            },
            classifier=None if classifier is None else classifier.described(),
        )
        document.write(scratch)
        exported = load_exported(scratch, device)
        if examples is not None and len(examples):
            check_same(exported, reference, constants, examples)
            if classifier is not None:
                same = agreement(exported, classifier, examples, layout)
                document = replace(document, classifier=classifier.described() | same)
            original = original.float().to(device)
            document = replace(
                document,
                speed=measure_speed(original, exported, examples, progress),
                fidelity=measure_fidelity(
                    states_of(original), states_of(exported), examples, layout
                ),
            )
            if int8 is not None:
                both, single = (
                    load_exported(scratch, int8=True),
                    replace(reference, precision="float32"),
                )
                found = measure_int8(original, both, single, examples, int8, progress)
                document = replace(document, speed={**(document.speed or {}), "int8": found})
        if onnx:
            document = replace(
                document,
                speed=_with_onnx(document, original, exported, scratch, examples, int8),
            )
        (scratch / CARD).write_text(model_card(document))
        document.write(scratch)
    return document


def _with_onnx(
    document: ExportDocument,
    original: nn.Module,
    exported: ExportedEncoder,
    folder: Path,
    examples: TokenisedSplit | None,
    scored: Scored | None,
) -> dict[str, Any] | None:
    """Write the ONNX form, also in 8 bits where those were measured; the speed with what it gains
    in onnxruntime.
    """
    exported = exported.to("cpu")
    with TemporaryDirectory() as scratch:
        with exported.dense() as dense:
            graphs = Graphs(
                dense, exported.layout, Path(scratch) / "graphs", int8=scored is not None
            )
        shutil.copyfile(graphs.last, folder / ONNX)
        if scored is not None:
            shutil.copyfile(graphs.last_int8, folder / ONNX_INT8)
        if examples is None or document.speed is None:
            return None
        check_onnx_same(exported, folder / ONNX, examples)
        timed = measure_onnx(
            original.cpu(), graphs, exported.encoder, examples, exported.layout, scored
        )
    return {**document.speed, "onnx": timed}


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
    weights = without_constant_heads(original, heads, kind_of(constants))
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    save_file(stored(constants, heads), folder / CONSTANTS)
    shutil.copyfile(Path(reference.folder) / "config.json", folder / CONFIGURATION)
    (folder / "config.json").write_text(json.dumps(FOR_OTHERS) + "\n")
    for name in TOKENIZER_FILES:
        source = Path(reference.folder) / name
        if source.is_file():
            shutil.copyfile(source, folder / name)
    for name in (WEIGHTS, CONSTANTS):
        # safetensors makes files that their owner alone may read.
        shutil.copymode(folder / CONFIGURATION, folder / name)


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
