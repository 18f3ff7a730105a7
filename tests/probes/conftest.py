"""The lower layers of the embedded encoder and small samples of real corpora."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import pytest

from papa.heads.constants import ConstantMatrices
from papa.models.encoder import Encoder, load_encoder
from papa.models.reference import EncoderReference, load_tokenizer, resolve_encoder
from papa.probes.evaluate import evaluate_cell
from papa.probes.features import FeatureModel
from papa.progress import Progress, ignore_progress
from papa.scores.metrics import Scored
from papa.spec import EncoderSpec, ExecutionSpec, FeaturesSpec, LayoutSpec, TaskSpec
from papa.spec.orders import Head
from papa.text.corpus import TokenisedCorpus, load_corpus, tokenise_corpus

LAYERS = 2
HEADS = [(layer, head) for layer in range(LAYERS) for head in range(12)]
Corpora = dict[str, TokenisedCorpus]
Tasks = dict[str, TaskSpec]
CorpusOf = Callable[..., TokenisedCorpus]
RATE = {"learning_rate": 5e-4, "batch_size": 8, "epochs": 2}


@pytest.fixture(scope="session")
def reference(shallow: str) -> EncoderReference:
    return resolve_encoder(EncoderSpec(name=shallow))


@pytest.fixture(scope="session")
def encoder(reference: EncoderReference) -> Encoder:
    return load_encoder(reference)


DESCRIBED: dict[str, tuple[object, ...]] = {
    "reviews": ("text", "matthews", 64, 64, 30, {"text": "sentence", "label": "label"}),
    "review_pairs": (
        *("pair", "accuracy", 128, 24, 8),
        {"text": "sentence1", "text_pair": "sentence2", "label": "label"},
    ),
    "wnut17": ("words", "entity_f1", 64, 40, 20, {"words": "tokens", "label": "ner_tags"}),
    "wikitext": ("mlm", "negative_log_perplexity", 32, 24, 10, {"text": "text"}),
}
KEYS = ("kind", "metric", "slots", "train_rows", "validation_rows", "columns")


@pytest.fixture(scope="session")
def tasks(corpora_folder: Path) -> Tasks:
    specs = dict[str, TaskSpec]()
    raw = corpora_folder / "wikitext_raw"
    for name, values in DESCRIBED.items():
        folder = corpora_folder / name
        files = {split: folder / f"{split}.jsonl" for split in ("train", "validation")}
        if name == "wikitext":
            files = {"train": raw / "validation.txt", "validation": raw / "test.txt"}
        described = {"name": name, "source": {"kind": "files", **files}, "probe": RATE}
        described |= dict(zip(KEYS, values, strict=True))
        specs[name] = TaskSpec.model_validate(described)
    return specs


@pytest.fixture(scope="session")
def corpus_of(
    tasks: Tasks, reference: EncoderReference, tmp_path_factory: pytest.TempPathFactory
) -> CorpusOf:
    tokenizer = load_tokenizer(reference)

    def build(name: str, changes: Mapping[str, object] = MappingProxyType({})) -> TokenisedCorpus:
        folder = tmp_path_factory.mktemp("corpora") / name
        task = tasks[name].model_copy(update=changes)
        # Several shards a split: rows are found across shard borders.
        return load_corpus(tokenise_corpus(task, LayoutSpec(), tokenizer, folder, shard_rows=32))

    return build


@pytest.fixture(scope="session")
def corpora(tasks: Tasks, corpus_of: CorpusOf) -> Corpora:
    return {name: corpus_of(name) for name in tasks}


Cell = Callable[..., list[Scored]]
FeatureDtype = Literal["float32", "bfloat16"]


@pytest.fixture
def cell(encoder: Encoder, corpora: Corpora, tasks: Tasks, tmp_path: Path) -> Cell:
    """A cell's scores; a budget of 0 streams features, dropout is the encoder's."""

    def run(
        task_or_name: str | TaskSpec,
        corpus: TokenisedCorpus | None = None,
        model: FeatureModel = encoder,
        *,
        seeds: Sequence[int] = (0, 1),
        budget: float = 1,
        dtype: FeatureDtype = "float32",
        batch_tokens: int = 512,
        epochs: int = 2,
        dropout: bool = False,
        constants: ConstantMatrices | None = None,
        heads: Sequence[Head] = (),
        trained: bool = False,
        progress: Progress = ignore_progress,
    ) -> list[Scored]:
        task = tasks[task_or_name] if isinstance(task_or_name, str) else task_or_name
        return evaluate_cell(
            model,
            corpus or corpora[task.name],
            with_probe(task, epochs=epochs, encoder_dropout=dropout),
            seeds,
            features=FeaturesSpec(dtype=dtype),
            execution=ExecutionSpec(batch_tokens=batch_tokens, features_budget_gb=budget),
            scratch=tmp_path / "scratch",
            substitute=constants,
            heads=heads,
            trained=trained,
            progress=progress,
        )

    return run


def with_probe(task: TaskSpec, **changes: object) -> TaskSpec:
    return task.model_copy(update={"probe": task.probe.model_copy(update=changes)})


def scores(scored_seeds: list[Scored]) -> np.ndarray:
    return np.array([scored.score for scored in scored_seeds])


@contextmanager
def counted_passes(encoder: Encoder) -> Iterator[list[int]]:
    """Inside the block, list how many inputs each forward pass of the encoder took."""
    passes: list[int] = []

    def count(*_: object) -> None:
        batch = encoder.dispatch.batch
        assert batch is not None
        passes.append(len(batch.rows))

    with encoder.model.register_forward_pre_hook(count):
        yield passes
