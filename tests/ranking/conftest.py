"""Real text and its average, to rank heads with; encoders whose label one head carries."""

from pathlib import Path

import pytest

from papa.heads.average import average_of, average_split
from papa.models.encoder import Encoder
from papa.models.reference import EMBEDDED, EncoderReference, load_tokenizer
from papa.ranking.loss_scores import ScoringRequest
from papa.spec import ExecutionSpec, LayoutSpec, RankingSpec
from papa.spec.file import resolve_study
from papa.text.corpus import load_corpus, tokenise_corpus
from tests.probes.conftest import encoder, reference  # noqa: F401
from tests.ranking.planted import Planted, planted

SLOTS = 32


@pytest.fixture(scope="session")
def scoring_request(
    encoder: Encoder,  # noqa: F811
    reference: EncoderReference,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> ScoringRequest:
    entry = {"name": "reviews", "slots": SLOTS, "train_rows": 96, "validation_rows": 32}
    document = {"name": "t", "encoders": [EMBEDDED], "tasks": [entry]}
    (task,) = resolve_study(document, folder=Path(), origin="test").tasks
    folder = tmp_path_factory.mktemp("ranking") / "corpus"
    tokenise_corpus(task, LayoutSpec(), load_tokenizer(reference), folder, shard_rows=64)
    corpus = load_corpus(folder)
    sums = average_split(encoder, corpus.split("train"), slots=SLOTS, batch_tokens=1024)
    return ScoringRequest(
        encoder, average_of(sums), corpus, task, RankingSpec(), 0, ExecutionSpec()
    )


@pytest.fixture(scope="session", params=[(0, 2), (1, 1)], ids=str)
def one_head(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return planted(tmp_path_factory.mktemp("planted"), request.param)


@pytest.fixture(scope="session", params=[False, True], ids=["probe", "native head"])
def answering(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Whose loss is a frozen probe's, then one that its native head answers."""
    return planted(tmp_path_factory.mktemp("planted"), (1, 1), own_head=request.param)
