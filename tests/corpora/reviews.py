"""Corpora made of the embedded review sentences."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from papa.text.sources import read_reviews

ROWS = {"train": 300, "validation": 280}


def write_corpora(folder: Path) -> None:
    """Copy the corpora beside this file into a folder, with `reviews` and `review_pairs`.

    `reviews` has columns `sentence` and `label` (positive or not). `review_pairs` has `sentence1`,
    `sentence2` and `label`: the second has 0 to 8 words of the first review and the rest of the
    next one; its label is 0 where four or more are of the first, as in entailment, else 1.
    """
    code = shutil.ignore_patterns("*.py", "__pycache__")
    shutil.copytree(Path(__file__).parent, folder, ignore=code)
    splits: tuple[Literal["train", "validation"], ...] = ("train", "validation")
    for split in splits:
        reviews = read_reviews(split).rows.to_pylist()
        rows = [{"sentence": row["text"], "label": row["label"]} for row in reviews[: ROWS[split]]]
        write_rows(folder / "reviews" / f"{split}.jsonl", rows)
        pairs = []
        for row in range(ROWS[split]):
            words = reviews[row]["text"].split()
            other_words = reviews[row + 1]["text"].split()
            shared = row % 9
            second = words[:shared] + other_words[: 8 - shared]
            pair = {"sentence1": reviews[row]["text"], "sentence2": " ".join(second)}
            pairs.append({**pair, "label": int(shared < 4)})
        write_rows(folder / "review_pairs" / f"{split}.jsonl", pairs)


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write a JSON Lines file, and the folder that it lies in."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
