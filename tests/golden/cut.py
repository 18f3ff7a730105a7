"""Cut the full golden tensors to what the repository holds: python -m tests.golden.cut"""

from __future__ import annotations

import json
import shutil

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.golden.tensors import (
    COMPUTED,
    CONSTANT_HEADS,
    CUT_FOLDER,
    TRAINED,
    full_folder,
    load_golden,
)

TEXTS = torch.tensor([1, 2, 4])
"""Of the eight inputs: a short, a middling and a long one (20, 11 and 29 tokens)."""


def cut_tensors(full: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors without unused slots, without padding and without most inputs."""
    used_slots = full["counts"].diagonal().nonzero().flatten()
    cut = {name: full[name] for name in full if name.startswith("probe.")}
    del cut["probe.dense.weight"]
    cut["lambda_logits"] = full["lambda_logits"]
    cut["used_slots"] = used_slots
    cut["average_attention"] = full["average_attention"][:, :, used_slots[:, None], used_slots]
    cut["counts"] = full["counts"][used_slots[:, None], used_slots]
    for prefix, rows in (("", TEXTS), ("corpus.", torch.arange(800))):
        mask = full[f"{prefix}attention_mask"][rows].bool()
        cut[f"{prefix}lengths"] = mask.sum(dim=1).to(torch.uint8)
        # The vocabulary has 30,522 entries.
        cut[f"{prefix}input_ids"] = full[f"{prefix}input_ids"][rows][mask].to(torch.int16)
    mask = full["attention_mask"][TEXTS].bool()
    for name in CONSTANT_HEADS:
        cut[f"last_hidden_state_{name}"] = full[f"last_hidden_state_{name}"][TEXTS][mask]
        cut[f"logits_{name}"] = full[f"logits_{name}"][TEXTS]
    return {name: tensor.contiguous() for name, tensor in cut.items()}


if __name__ == "__main__":
    golden = load_golden(full_folder())
    metadata = {"order": json.dumps(golden.order)}
    save_file(cut_tensors(golden.tensors), CUT_FOLDER / COMPUTED, metadata)
    shutil.copyfile(full_folder() / TRAINED, CUT_FOLDER / TRAINED)
