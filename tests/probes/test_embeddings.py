"""The baseline of an encoder's word embeddings alone, and what cells keep of each
validation row.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from papa.attention.constants import control
from papa.attention.replacement import replaced
from papa.corpora import TokenisedCorpus
from papa.corpora.batches import micro_batch
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import evaluate_cell
from papa.probes.features import FeatureModel, WordEmbeddings
from papa.probes.training import SeedScore
from papa.scores.metrics import score_of_examples
from papa.spec import ExecutionSpec, FeaturesSpec, TaskSpec


def evaluated(
    model: FeatureModel,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    scratch: Path,
    budget: float = 1.0,
    seeds: Sequence[int] = (0, 1),
) -> list[SeedScore]:
    execution = ExecutionSpec(batch_tokens=512, features_budget_gb=budget)
    return evaluate_cell(
        model, corpus, task, seeds, features=FeaturesSpec(), execution=execution, scratch=scratch
    )


def test_features_are_the_embeddings_of_the_real_tokens(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus]
) -> None:
    split = corpora["rte"].split("validation")
    (states,) = WordEmbeddings(encoder).token_states(micro_batch(split, [3, 0, 7]))
    expected = encoder.model.embeddings.word_embeddings(
        torch.from_numpy(split.tokens([3, 0, 7]).input_ids).long()
    )
    torch.testing.assert_close(states, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["cola", "rte", "wnut17", "wikitext"])
def test_the_probe_on_word_embeddings_sees_no_attention(
    name: str,
    encoder: Encoder,
    corpora: dict[str, TokenisedCorpus],
    tasks: dict[str, TaskSpec],
    tmp_path: Path,
) -> None:
    corpus, task = corpora[name], tasks[name]
    pruned = control("zeros", encoder.layers, encoder.heads, corpus.slots)
    heads = [(layer, head) for layer in range(encoder.layers) for head in range(encoder.heads)]
    found = {}
    for what, model in (("embeddings", WordEmbeddings(encoder)), ("encoder", encoder)):
        before = evaluated(model, corpus, task, tmp_path, seeds=(0,))
        with replaced(encoder, pruned, heads):
            after = evaluated(model, corpus, task, tmp_path, seeds=(0,))
        found[what] = [
            np.abs(one.examples - two.examples).max()
            for one, two in zip(before, after, strict=True)
        ]
    assert found["embeddings"] == [0]
    if name == "wikitext":
        assert max(found["encoder"]) > 0, "the encoder's own features do see it"


def test_stored_and_streamed_word_embeddings_score_alike(
    encoder: Encoder,
    corpora: dict[str, TokenisedCorpus],
    tasks: dict[str, TaskSpec],
    tmp_path: Path,
) -> None:
    corpus, task = corpora["wikitext"], tasks["wikitext"]
    stored = evaluated(WordEmbeddings(encoder), corpus, task, tmp_path)
    dropout = task.model_copy(
        update={"probe": task.probe.model_copy(update={"encoder_dropout": True})}
    )
    for other, budget in ((task, 0.0), (dropout, 1.0)):
        streamed = evaluated(WordEmbeddings(encoder), corpus, other, tmp_path, budget)
        assert [scored.score for scored in streamed] == pytest.approx(
            [scored.score for scored in stored], abs=1e-4
        )


@pytest.mark.parametrize("name", ["cola", "rte", "wnut17", "wikitext"])
def test_what_each_row_adds_gives_the_score(
    name: str,
    encoder: Encoder,
    corpora: dict[str, TokenisedCorpus],
    tasks: dict[str, TaskSpec],
    tmp_path: Path,
) -> None:
    for scored in evaluated(encoder, corpora[name], tasks[name], tmp_path):
        assert len(scored.examples) == len(corpora[name].split("validation"))
        assert score_of_examples(tasks[name].metric, scored.examples) == scored.score
