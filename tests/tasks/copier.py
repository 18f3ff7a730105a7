"""A small GPT-2 that copies what stood 23 tokens before, as studies read it."""

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from tests.corpora.reviews import write_rows
from tests.heads.copying import HALF, TOKENS, repeated, trained_copier

METRIC = "negative_log_perplexity"
TASK: dict[str, object] = {
    "kind": "causal",
    "head": "native",
    "columns": {"text": "text"},
    "slots": 2 * HALF,
}


def write_copying_model(folder: Path) -> None:
    trained_copier().save_pretrained(folder)
    words = {f"w{number}": number for number in range(TOKENS)}
    tokenizer = Tokenizer(WordLevel(words))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def write_copier(folder: Path) -> None:
    """Write the model to ``folder / "model"``, and its texts to a JSON Lines file each split."""
    write_copying_model(folder / "model")
    for split, seed in (("train", 20_000), ("validation", 10_001)):
        texts = [" ".join(f"w{number}" for number in row) for row in repeated(seed).tolist()]
        write_rows(folder / f"{split}.jsonl", [{"text": text} for text in texts])
