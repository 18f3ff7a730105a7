"""Studies of constant outputs, of scores of heads, and of a head that carries the label."""

from pathlib import Path

import numpy as np
import pytest

from papa.errors import SpecError
from papa.flows.cli.export import export_cell
from papa.ranking.orders import SCORING_METHODS
from papa.scores.metrics import influence
from papa.tasks.cell import read_examples, read_scores
from papa.tasks.pipeline import Pipeline
from papa.tasks.results import head_orders
from papa.tasks.step import Step
from tests.finished import cells_of, described, opened, score_study
from tests.flows.conftest import SMALL, TINY
from tests.ranking.planted import planted_encoder, planted_task, with_classifier
from tests.tasks.steps import steps_of

pytestmark = pytest.mark.unchecked

KINDS = ["mean_output", "mean_output_by_slot", "resampled_output", "optimal_output"]
PROBED = {**SMALL["tasks"][0], "metric": "accuracy", "source": {"kind": "embedded"}}
PROBED |= {"train_rows": 16, "validation_rows": 16}
OWN = {**PROBED, "head": "native", "metric": "cosine", "base": "reviews", "train_rows": 32}
ORDERS = ["distance", "reversed:confidence", "variance"]
"""Label-free all."""


@pytest.mark.server
@pytest.mark.parametrize(("task", "kinds"), [(PROBED, KINDS), (OWN, KINDS[:3])])
def test_constant_outputs_score_each_seed(
    task: dict[str, object], kinds: list[str], shallow: str, tmp_path: Path
) -> None:
    study = described(shallow, task, substitutes=kinds, keep=[1, 0.5], probe_seeds=[0, 1])
    steps, _, table, artifacts = scored = score_study(study, Path(), tmp_path / "store")
    outputs = [step for step in steps.steps if step.stage.name == "constant_outputs"]
    unseeded = [(kind, None) for kind in KINDS[:2]]
    drawn = [("resampled_output", seed) for seed in (0, 1)]
    assert len(outputs) == 4
    assert {(step["kind"], step["seed"]) for step in outputs} == {*unseeded, *drawn}
    for cell, probes in cells_of(steps).items():
        drawn_by_seed = cell.constants == "resampled_output" and cell.fraction < 1
        by_seed = drawn_by_seed or task is PROBED
        assert [probe["seeds"] for probe in probes] == ([(0,), (1,)] if by_seed else [(0, 1)])
        in_cell = (table["constants"] == cell.constants) & (table["fraction"] == cell.fraction)
        rows = table[in_cell].set_index("seed")
        for probe in probes:
            stored = read_scores(artifacts[probe]).scores, read_examples(artifacts[probe])
            for scored_seed, examples in zip(*stored, strict=True):
                row = rows.loc[scored_seed.seed]
                assert row["score"] == scored_seed.score
                rows_of_kind = influence(task["metric"], examples)
                np.testing.assert_allclose(row["influence"], rows_of_kind, atol=1e-6)
    half = table[table["fraction"] == 0.5]
    assert half["score"].notna().all()
    assert half["constant_heads"].unique().tolist() == [12]
    if task is OWN:
        by_kind = half.groupby("constants")["score"].nunique()
        assert by_kind.to_dict() == {kinds[0]: 1, kinds[1]: 1, kinds[2]: 2}, "a draw for each seed"
    finished = opened(scored)
    constant = {entry.constant_heads for entry in finished.manifest.cells if entry.fraction < 1}
    assert constant == {tuple((0, head) for head in range(12))}
    cell_options = {"order": "first_to_last", "constants": kinds[-1]}
    with pytest.raises(SpecError, match=f"'{kinds[-1]}'"):
        export_cell(finished, cell_options, tmp_path / "export", keep=0.5)


@pytest.mark.parametrize("method", ["effect", "greedy"])
def test_each_seed_scores_a_sample_of_its_own(method: str, shallow: str, tmp_path: Path) -> None:
    """Nothing else of a native head differs by seed."""
    ranking = {"rows": 8, "evaluations": 24}
    design = {"orders": [method], "ranking": ranking, "ranking_seeds": [0, 1]}
    study = described(shallow, OWN, keep=[1, 0.96], **design)
    scored = score_study(study, Path(), tmp_path / "store")
    (pair,) = scored.pipeline.pairs
    first, second = pair.head_scores(scored.artifacts)[method].by_seed
    assert (first != second).any()


def scorings(steps: Pipeline) -> list[Step]:
    return [step for step in steps.steps if step.stage.name == "score_heads"]


def test_deterministic_streamed_methods_share_a_pass() -> None:
    (step,) = scorings(steps_of(orders=ORDERS))
    streamed = {name for name, method in SCORING_METHODS.items() if method.is_row_mean}
    streamed -= {"sink_share"}  # Of models in memory alone.
    assert set(step["methods"]) == streamed
    assert {"confidence", "variance"} < streamed
    assert scorings(steps_of(orders=ORDERS, ranking_seeds=[5])) == [step]
    assert scorings(steps_of(orders=["variance"])) == [step]
    sampled = scorings(steps_of(orders=ORDERS, ranking={"rows": 8}, ranking_seeds=[0, 1]))
    assert len(sampled) == 2
    assert step not in sampled, "of a sample each seed has its own"
    assert len({sampled_step.name for sampled_step in sampled}) == 2


def test_methods_that_read_labels_share_a_probe() -> None:
    task = SMALL["tasks"][0]
    trained = [{**task, "probe": {**task["probe"], "epochs": 2}}]
    first, second = scorings(steps_of(orders=["gradient"], ranking_seeds=[0, 1]))
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first != second
    assert first not in scorings(steps_of(orders=["gradient"], tasks=trained))
    assert scorings(steps_of(orders=ORDERS)) == scorings(steps_of(orders=ORDERS, tasks=trained)), (
        "text alone is read"
    )
    orders = ["gradient", "shapley", "greedy", "effect", "gates", "distance"]
    steps = steps_of(orders=orders, ranking={"evaluations": 400}, ranking_seeds=[0, 1])
    frozen = [step for step in steps.steps if step.stage.name == "train_frozen_probe"]
    assert [step["seed"] for step in frozen] == [0, 1]
    for step in scorings(steps):
        reads = step["methods"][0] in orders[:4]
        assert step["frozen_probe"] == (frozen[step["seed"]] if reads else None), step.name
        assert not reads or steps.steps.index(step) > steps.steps.index(step["frozen_probe"])


@pytest.mark.server
def test_a_study_by_scores_of_heads(shallow: str, tmp_path: Path) -> None:
    document = {**TINY, "encoders": [shallow], "orders": [*ORDERS, "gradient"]}
    steps, _, _, artifacts = scored = score_study(document, Path(), tmp_path / "store")
    comparison = opened(scored).orders
    assert comparison is not None
    pairs = comparison.pairs
    assert {"gradient", "variance"} <= {*pairs["order"], *pairs["other"]}
    assert "train_lambda" not in {step.stage.name for step in steps.steps}
    ((_, orders),) = head_orders(steps.pairs, artifacts, "head").items()
    costs = {order: studied_order.evaluations for order, studied_order in orders.items()}
    assert costs == {"distance": 1, "reversed:confidence": None, "variance": None, "gradient": 2}
    timed = {order for order, studied_order in orders.items() if studied_order.seconds}
    assert timed == {"distance", "gradient"}


HEAD = (1, 1)
VALUED = ["shapley", "greedy", "effect"]
TRAINED = ["gradient", "gates", "lambda"]
LABEL_FREE = ["self_lambda", "distance", "output_distance"]
ASKED: dict[str, tuple[dict[str, str], list[str]]] = {
    "probe": ({"head": "probe"}, [*VALUED, *TRAINED, *LABEL_FREE]),
    "native head": ({"head": "native"}, [*VALUED, "gradient"]),
    "itself": ({"head": "native", "metric": "agreement"}, VALUED),
}


def planted_study(folder: Path, changes: dict[str, str], orders: list[str]) -> dict[str, object]:
    planted_encoder(folder / "encoder", HEAD)
    task = planted_task(folder)
    if changes["head"] == "native":
        with_classifier(folder / "encoder", task)
    ranking = {"epochs": 6, "learning_rate": 0.05, "evaluations": 40, "rows": 64}
    entry = {**task.model_dump(mode="json"), **changes}
    return described(folder / "encoder", entry, orders=orders, keep=[1, 0.5], ranking=ranking)


@pytest.mark.parametrize("name", ASKED)
def test_the_head_that_carries_the_label_becomes_constant_last(name: str, tmp_path: Path) -> None:
    """With half of the heads constant nothing is lost; from the order's other end, all is."""
    changes, orders = ASKED[name]
    both = [*orders, *(f"reversed:{order}" for order in orders)]
    document = planted_study(tmp_path, changes, both)
    steps, _, table, artifacts = score_study(document, tmp_path, tmp_path / "store")
    for cell, (probe,) in cells_of(steps).items():
        if cell.fraction < 1:
            ranked = probe["heads"].heads_in_order(artifacts)
            assert ranked[0 if "reversed" in cell.order else -1] == HEAD, cell.order
    half = table[table["fraction"] == 0.5].set_index("order")["score"]
    whole = table[table["fraction"] == 1]["score"].max()
    assert whole > 0.95
    for order in orders:
        assert half[order] > whole - 0.05, order
        assert half[f"reversed:{order}"] < 0.75, order
