"""Write an exported encoder again, as it is now."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from papa.errors import ArtifactError
from papa.exporting.card import model_card
from papa.exporting.document import CARD, CLASSIFIER, CONFIGURATION, DOCUMENT, WEIGHTS
from papa.exporting.loading import load_exported
from papa.exporting.model import ExportedEncoder
from papa.exporting.onnx import ONNX, ONNX_INT8
from papa.exporting.writing import check_free, written_aside


def save_exported(model: ExportedEncoder, folder: str | Path) -> None:
    """Write what ``load_exported`` gave, with its weights as they are now, whole or not at all.

    Where they were trained since, scores, embeddings and graphs of the folder that it came from are
    left out: they are of other weights.

    Args:
        model: its folder must still be there.
        folder: must not exist, or be empty.

    Raises:
        ArtifactError: the folder is taken or cannot be written, or there is none it came from.
    """
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
                kept = {key: tensor.cpu().contiguous() for key, tensor in weights.items()}
                save_file(kept, scratch / name, metadata={"format": "pt"})
                shutil.copymode(scratch / CONFIGURATION, scratch / name)
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
