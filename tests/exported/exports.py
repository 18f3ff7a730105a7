"""Exports of small models, and what their texts look like to the original."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

import papa
from tests.make import outputs_of, random_model

FIRST = ["the doll wriggled and ran", "had you eaten more", "facts", "day by day the facts murky"]
SECOND = ["a doll", "less is more and more is less", "nobody knows", "why"]
SLOTS = 64
HEADS = [(0, 1), (0, 2), *((1, head) for head in range(4)), (2, 0)]
EVERY = [(layer, head) for layer in range(3) for head in range(4)]
TOLERANCE = 1e-5
RELATIVE = ("mpnet", "deberta", "deberta_near", "deberta_v3", "deberta_v2_xlarge")
"""Their layers compute attention by themselves."""


def tokenizer_of(family: str = "bert") -> Any:
    words = sorted({word for text in (*FIRST, *SECOND) for word in text.split()})
    if family in ("roberta", "mpnet"):
        tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted({*"".join(words), "Ġ"})]
        return transformers.RobertaTokenizer(vocab=numbered(tokens), merges=[])
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    return transformers.ElectraTokenizer(vocab=numbered(tokens))


def numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def constants(layers: int = 3, heads: int = 4, seed: int = 1) -> Tensor:
    """Sharp rows: near-uniform ones would make any two sets of heads alike."""
    torch.manual_seed(seed)
    return (4 * torch.randn(layers, heads, SLOTS, SLOTS)).softmax(dim=-1)


def banded() -> Tensor:
    """Constants as averages are, 0 outside the windows of ModernBERT's local layers."""
    matrices = constants()
    slots = torch.arange(SLOTS)
    matrices[1:, :, (slots[:, None] - slots).abs() > 3] = 0
    return matrices


def states(model: Any, inputs: Any) -> list[Tensor]:
    hidden = outputs_of(model, inputs).last_hidden_state
    masks = inputs["attention_mask"].bool()
    return [text[mask] for text, mask in zip(hidden, masks, strict=True)]


def difference(actual: Any, expected: Any) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(actual, expected, strict=True))


def in_slots(model: Any, tokenizer: Any, pairs: bool = False) -> dict[str, Tensor]:
    """The texts padded to S slots, as DESIGN of the layout has them: [SEP] in the last one."""
    names = ("attention_mask", "token_type_ids")
    shape = (len(FIRST), SLOTS)
    full = {name: torch.zeros(shape, dtype=torch.long) for name in names}
    full["input_ids"] = torch.full(shape, tokenizer.pad_token_id)
    for row, texts in enumerate(zip(FIRST, SECOND, strict=True)):
        encoding = tokenizer(*texts[: 1 + pairs])
        first = encoding["input_ids"].index(tokenizer.sep_token_id)
        rest = len(encoding["input_ids"]) - first - 1
        slots = [*range(first), *range(SLOTS // 2, SLOTS // 2 + rest), SLOTS - 1]
        for name, values in encoding.items():
            full[name][row, slots] = torch.tensor(values)
    if model.config.model_type in ("distilbert", "modernbert", "mpnet"):
        full.pop("token_type_ids")
    return full


def padded(tokenizer: Any, pairs: bool = False) -> Any:
    return tokenizer(FIRST, *([SECOND] if pairs else []), padding=True, return_tensors="pt")


def saved(
    model: Any,
    tokenizer: Any,
    to: Path,
    matrices: Tensor | None = None,
    *,
    pairs: bool = False,
    heads: list[tuple[int, int]] = HEADS,
) -> Any:
    used = constants() if matrices is None else matrices
    papa.export(model, tokenizer, heads=heads, substitute=used, folder=to, pairs=pairs)
    return AutoModel.from_pretrained(to), AutoTokenizer.from_pretrained(to)


def headed(kind: str) -> Any:
    family = kind.partition("For")[0].lower()
    config = random_model({"debertav2": "deberta_v2_xlarge"}.get(family, family)).config
    config.id2label = {0: "bad", 1: "good", 2: "neither"}
    # Ordinary positions and slots have the same windows then.
    config.local_attention = 4 * SLOTS
    torch.manual_seed(3)
    return getattr(transformers, kind)(config).eval()
