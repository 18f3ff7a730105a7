"""The first layers of the embedded encoder, and other models with its tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from papa.models.files import tokenizer_files
from papa.models.reference import EncoderReference, embedded_folder, resolve_encoder
from papa.spec import EncoderSpec


def lower_layers(layers: int, folder: Path) -> EncoderReference:
    """Write the encoder of the first layers to a folder."""
    embedded = embedded_folder()
    shutil.copytree(embedded, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((embedded / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}))
    weights = load_file(embedded / "model.safetensors")
    above = tuple(f"encoder.layer.{layer}." for layer in range(layers, config["num_hidden_layers"]))
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(above)}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return resolve_encoder(EncoderSpec(name=str(folder)))


def with_tokenizer(model: PreTrainedModel, folder: Path) -> Path:
    """A model's folder, with the tokenizer of the embedded encoder."""
    model.save_pretrained(folder)
    for file in tokenizer_files(embedded_folder()):
        shutil.copy(file, folder)
    return folder
