"""The lower layers of the embedded encoder, real text and its average, to rank heads with; and
encoders in which one head alone carries the label.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.attention.average import average_split
from papa.attention.constants import ConstantMatrices
from papa.corpora.corpus import TokenisedCorpus, load_corpus, tokenise_corpus
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.reference import EMBEDDED, EncoderReference, load_tokenizer, resolve_encoder
from papa.ranking.scores.asked import Asked
from papa.spec import EncoderSpec, LayoutSpec, RankingSpec, TaskSpec
from papa.spec.file import resolve_study
from tests.ranking.planted import Planted, asked_of, planted

SLOTS = 32


@pytest.fixture(scope="session")
def reference(shallow: str) -> EncoderReference:
    return resolve_encoder(EncoderSpec(name=shallow))


@pytest.fixture(scope="session")
def encoder(reference: EncoderReference) -> Encoder:
    return load_encoder(reference)


@pytest.fixture(scope="session")
def task() -> TaskSpec:
    entry = {"name": "reviews", "slots": SLOTS, "train_rows": 96, "validation_rows": 32}
    document = {"name": "t", "encoders": [EMBEDDED], "tasks": [entry]}
    return resolve_study(document, folder=Path(), origin="test").tasks[0]


@pytest.fixture(scope="session")
def corpus(
    task: TaskSpec, reference: EncoderReference, tmp_path_factory: pytest.TempPathFactory
) -> TokenisedCorpus:
    folder = tmp_path_factory.mktemp("ranking") / "corpus"
    tokenise_corpus(task, LayoutSpec(), load_tokenizer(reference), folder, shard_rows=64)
    return load_corpus(folder)


@pytest.fixture(scope="session")
def average(encoder: Encoder, corpus: TokenisedCorpus) -> ConstantMatrices:
    return average_split(encoder, corpus.split("train"), slots=SLOTS, batch_tokens=1024).average()


@pytest.fixture
def asked(
    encoder: Encoder,
    average: ConstantMatrices,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    tmp_path: Path,
) -> Asked:
    no_head_is_planted = Planted((0, 0), encoder, average, corpus, task)
    return asked_of(no_head_is_planted, tmp_path, ranking=RankingSpec())


@pytest.fixture(scope="session", params=[(0, 2), (1, 1)], ids=str)
def one_head(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """The planted head is in the first layer, then in the last."""
    return planted(tmp_path_factory.mktemp("planted"), request.param)
