"""Inputs in both forms: padded to S slots, and compact."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from papa.models.files import tokenizer_files
from papa.models.reference import EncoderReference, embedded_folder, resolve_encoder
from papa.spec import EncoderSpec
from papa.text.batches import MicroBatch

SLOTS = 24


@dataclass(frozen=True)
class Inputs:
    """A few inputs, padded to S; ``compact`` drops the slots that nobody uses."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor

    def compact(self, extra: tuple[int, ...] = ()) -> MicroBatch:
        """The micro-batch; ``extra`` keeps further slots although no input uses them."""
        used = self.attention_mask.any(dim=0)
        used[list(extra)] = True
        columns = used.nonzero()[:, 0]
        mask = self.attention_mask[:, columns]
        inputs, column_ids = mask.nonzero(as_tuple=True)
        return MicroBatch(
            rows=torch.arange(len(self.input_ids)),
            columns=columns,
            column_ids=column_ids,
            inputs_of_tokens=inputs,
            positions_in_input=(mask.cumsum(dim=1) - 1)[mask],
            input_ids=self.input_ids[self.attention_mask],
            token_type_ids=self.token_type_ids[self.attention_mask],
        )

    def __getitem__(self, rows: slice) -> Inputs:
        return Inputs(self.input_ids[rows], self.attention_mask[rows], self.token_type_ids[rows])


def some_inputs(
    seed: int,
    lengths: tuple[int, ...] = (3, 9, 5, 9),
    *,
    second: tuple[int, ...] = (),
    pad: int = 0,
    segments: int = 1,
) -> Inputs:
    """Random inputs: text from slot 0, second texts from slot S/2, a last token in slot S-1."""
    generator = torch.Generator().manual_seed(seed)
    slots = torch.arange(SLOTS)
    mask = (slots < torch.tensor(lengths)[:, None]) | (slots == SLOTS - 1)
    if second:
        mask |= (slots >= SLOTS // 2) & (slots < SLOTS // 2 + torch.tensor(second)[:, None])
    ids = torch.randint(5, 300, mask.shape, generator=generator)
    types = torch.randint(0, segments, mask.shape, generator=generator)
    return Inputs(ids.where(mask, torch.tensor(pad)), mask, types * mask)


def change_configuration(folder: Path, changes: Mapping[str, object]) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def lower_layers(layers: int, folder: Path) -> EncoderReference:
    embedded = embedded_folder()
    shutil.copytree(embedded, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    change_configuration(folder, {"num_hidden_layers": layers})
    weights = load_file(embedded / "model.safetensors")
    above = tuple(f"encoder.layer.{layer}." for layer in range(layers, 6))
    lower_weights = {name: tensor for name, tensor in weights.items() if not name.startswith(above)}
    save_file(lower_weights, folder / "model.safetensors", metadata={"format": "pt"})
    return resolve_encoder(EncoderSpec(name=str(folder)))


def with_tokenizer(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    for file in tokenizer_files(embedded_folder()):
        shutil.copy(file, folder)
    return folder
