"""Small models in memory, and batches of texts for them."""

import torch
from transformers import PreTrainedModel

from tests.make import GPT2, RANGE, SIZES, model_factory

LAYERS = 2
HEADS = 4
EVERY_HEAD = {layer: list(range(HEADS)) for layer in range(LAYERS)}
TEXTS = 24


def bert(
    kind: str = "Model", *, labels: int = 2, problem_type: str | None = None
) -> PreTrainedModel:
    torch.manual_seed(0)
    settings = SIZES | {"num_hidden_layers": LAYERS, "vocab_size": 99}
    settings |= {"num_labels": labels, "problem_type": problem_type}
    return model_factory("Bert", settings, kind)().eval()


def gpt() -> PreTrainedModel:
    torch.manual_seed(0)
    settings = GPT2 | {"n_layer": LAYERS, "n_positions": 16, "vocab_size": 99}
    settings |= {"bos_token_id": 0, "eos_token_id": 0, "initializer_range": RANGE}
    return model_factory("GPT2", settings, "LMHeadModel")().eval()


def texts(left: bool = False) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 99, (TEXTS, 9), generator=draw)
    mask = torch.arange(9)[None] < torch.randint(4, 10, (TEXTS, 1), generator=draw)
    if left:
        ids = ids.flip(1)
        mask = mask.flip(1)
    halves = zip((ids * mask).split(TEXTS // 2), mask.long().split(TEXTS // 2), strict=True)
    return [{"input_ids": token_ids, "attention_mask": real} for token_ids, real in halves]


def labelled() -> list[dict[str, torch.Tensor]]:
    """Texts with one of three classes each."""
    return [{**batch, "labels": batch["input_ids"][:, 0] % 3} for batch in texts()]


def splits(batches: list[dict[str, torch.Tensor]]) -> dict[str, list[dict[str, torch.Tensor]]]:
    """A batch for each split."""
    train, validation = batches
    return {"train": [train], "validation": [validation]}


def without_padding(data: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    pairs = [zip(batch["input_ids"], batch["attention_mask"], strict=True) for batch in data]
    return [{"input_ids": ids[mask.bool()][None]} for batch in pairs for ids, mask in batch]


def in_one_batch() -> list[dict[str, torch.Tensor]]:
    return [{name: torch.cat([batch[name] for batch in texts()]) for name in texts()[0]}]
