"""A model has one table, whether a study opens it by name or it is measured in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
import transformers as tf

import papa
from papa.models.reference import embedded_folder
from papa.scores.summary import summarise
from papa.spec.orders import Unit
from papa.tasks.joint_effects import joint_effects_table
from papa.tasks.results import heads_table
from tests.corpora.reviews import write_rows
from tests.finished import Scored, described, score_study
from tests.heads.copying import TOKENS, repeated, trained_copier
from tests.make import decoder
from tests.probes.sentences import SMALL, pairs
from tests.tasks.copier import METRIC, TASK, write_copying_model

pytestmark = pytest.mark.unchecked
TEXTS = {"train": 48, "validation": 24}
ORDERS = ["random", "effect", "lambda", "output_norm", "first_token_attention"]
KEEP = [1, 0.5, 0]
MEASURES = ["mean", "low", "high", "difference"]
Both = tuple[Scored, papa.Measurement]
ORDERS_OF_GROUPS = ["random", "reversed:random", "effect", "lambda", "output_norm"]


def texts_of(split: str) -> list[str]:
    """Texts of different lengths."""
    rows = repeated(20_000 if split == "train" else 10_001).tolist()
    return [
        " ".join(f"w{number}" for number in row[: len(row) - index % 9])
        for index, row in enumerate(rows[: TEXTS[split]])
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copier")
    write_copying_model(folder / "model")
    for split in TEXTS:
        write_rows(folder / f"{split}.jsonl", [{"text": text} for text in texts_of(split)])
    return folder


def both_ways(
    model: tf.PreTrainedModel,
    path: Path,
    substitutes: list[str],
    orders: list[str],
    ranking_seeds: list[int],
    unit: Unit = "head",
) -> Both:
    """The study of a decoder at a path, and what measures the same model in memory."""
    design = {"substitutes": substitutes, "orders": orders, "keep": KEEP, "probe_seeds": [0, 1]}
    design |= {"ranking_seeds": ranking_seeds, "unit": unit}
    document = described(path, {**TASK, "metric": METRIC}, **design)
    measured = papa.measure(
        model,
        {split: texts_of(split) for split in TEXTS},
        task=papa.Task(name=METRIC),
        tokenizer=tf.AutoTokenizer.from_pretrained(path),
        progress=False,
        **design,
    )
    return score_study(document, path.parent, path.with_name(f"{path.name}-store")), measured


@pytest.fixture(scope="module")
def of_heads(folder: Path) -> Both:
    substitutes = ["average", "zeros"]
    return both_ways(trained_copier(), folder / "model", substitutes, ORDERS, [0, 1, 2])


@pytest.fixture(scope="module")
def of_groups(folder: Path) -> Both:
    """A random decoder, by groups of heads that share keys and values."""
    torch.manual_seed(0)
    model = decoder("Llama", {"num_hidden_layers": 2, "vocab_size": TOKENS})().eval()
    for saved in (model, tf.AutoTokenizer.from_pretrained(folder / "model")):
        saved.save_pretrained(folder / "grouped")
    path = folder / "grouped"
    return both_ways(model, path, ["average"], ORDERS_OF_GROUPS, [0, 1], unit="kv_group")


def by_cell(summary: pandas.DataFrame) -> pandas.DataFrame:
    cells = summary.set_index(["constants", "order", "fraction"]).sort_index()
    return cells[["constant_heads", *MEASURES]].astype(float)


@pytest.mark.parametrize(("decoder_name", "fewest_scores"), [("of_heads", 9), ("of_groups", 5)])
def test_the_table_of_a_decoder_is_the_same(
    decoder_name: str, fewest_scores: int, request: pytest.FixtureRequest
) -> None:
    study, measured = request.getfixturevalue(decoder_name)
    expected = by_cell(summarise(study.table))
    pandas.testing.assert_frame_equal(by_cell(measured.summary), expected, rtol=0, atol=1e-5)
    assert expected["mean"].nunique() >= fewest_scores, "negative control: cells differ"


@pytest.mark.parametrize("method", ORDERS[1:])
def test_intervals_are_the_same(of_heads: Both, method: str) -> None:
    study, measured = of_heads
    (pair,) = study.pipeline.pairs
    expected = pair.head_scores(study.artifacts)[method].frame(method)
    frame = measured.head_scores
    scores = frame[frame["method"] == method][["score", "low", "high"]]
    np.testing.assert_allclose(scores, expected[["score", "low", "high"]], atol=2e-5)
    assert np.ptp(expected["score"]) > 1e-3, "negative control: heads differ"
    assert (expected["low"] < expected["high"]).all()


@pytest.mark.parametrize(
    ("decoder_name", "last_pair"), [("of_heads", "L1H2 + L1H3"), ("of_groups", "L1H0-1 + L1H2-3")]
)
def test_joint_effects_are_the_same(
    decoder_name: str, last_pair: str, request: pytest.FixtureRequest
) -> None:
    study, measured = request.getfixturevalue(decoder_name)
    table = joint_effects_table(study.pipeline.pairs, study.artifacts)
    assert table is not None
    assert measured.joint_effects is not None
    effects = measured.joint_effects.effects
    for column in ("fraction", "count", "joint", "single_sum"):
        np.testing.assert_allclose(effects[column], table[column], atol=2e-5)
    assert effects["pair"].tolist() == table["pair"].tolist()
    assert effects["pair"].tolist()[-1] == last_pair, "pairs are of groups where units are"


def test_scores_of_groups_are_the_same(of_groups: Both) -> None:
    study, measured = of_groups
    aggregate = study.pipeline.steps[-1]
    pairs = study.pipeline.pairs
    scores = {pair.names: pair.head_scores(study.artifacts) for pair in pairs}
    table = heads_table(pairs, scores, aggregate["study"])
    for method in ("effect", "lambda", "output_norm"):
        expected = table[table["method"] == method]
        frame = measured.head_scores[measured.head_scores["method"] == method]
        for column in ("layer", "head", "kv_group", "score", "low", "high"):
            np.testing.assert_allclose(frame[column], expected[column], atol=2e-5)
        assert expected.groupby(["layer", "kv_group"])["score"].nunique().eq(1).all()
        assert expected["score"].nunique() == 4, "negative control: groups differ"


SLOTS = 32
ROWS = 24
ENCODERS = ["bert", "electra", "distilbert", "modernbert", "roberta"]
CASES = [*((family, False) for family in ENCODERS), ("bert", True), ("roberta", True)]
"""Families, and whether they read pairs of texts."""
ENCODER_SUBSTITUTES = ["average", "relative", "toeplitz", "mean_output", "resampled_output"]
PROBE_SEEDS = [0, 1]
ENCODER_ORDERS = ["effect", "distance", "lambda"]


@dataclass(frozen=True)
class Regression:
    """A random encoder that answers with a number, on texts of different lengths, and its study.

    Attributes:
        model: In memory.
        folder: Of its files.
        columns: Of its rows, by split.
        study: Scored by name.
    """

    model: tf.PreTrainedModel
    folder: Path
    columns: dict[str, dict[str, list[object]]]
    study: Scored

    def measured(
        self, substitutes: Sequence[object], orders: Sequence[str], keep: Sequence[float]
    ) -> papa.Measurement:
        pair = "b" if "b" in self.columns["train"] else None
        return papa.measure(
            self.model,
            self.columns,
            task=papa.Task(text="a", text_pair=pair, label="label", name="spearman"),
            tokenizer=tf.AutoTokenizer.from_pretrained(self.folder),
            score="spearman",
            probe_seeds=PROBE_SEEDS,
            ranking_seeds=[0],
            substitutes=substitutes,
            orders=orders,
            keep=keep,
            progress=False,
        )


def columns_of(split: str, is_pair: bool) -> dict[str, list[object]]:
    """Texts of different lengths, and a number for each."""
    first = 0 if split == "train" else ROWS
    columns: dict[str, list[object]] = {"a": [], "label": []}
    sentences = pairs(2 * ROWS)
    for row in range(first, first + ROWS):
        columns["a"].append(" ".join(str(sentences["a"][row]).split()[: 1 + row % 5]))
        columns["label"].append(float(row % 7))
        if is_pair:
            second = " ".join(str(sentences["b"][row]).split()[: 1 + row % 4])
            columns.setdefault("b", []).append(second)
    return columns


def write_regression(family: str, folder: Path) -> tf.PreTrainedModel:
    """Write an encoder with a regression head and its tokenizer, and return it."""
    torch.manual_seed(0)
    has_segments = family not in ("distilbert", "modernbert")
    sizes = SMALL | {"num_labels": 1, "pad_token_id": 0}
    if has_segments:
        sizes |= {"type_vocab_size": 2}
    if family == "distilbert":
        sizes |= {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
    config = tf.CONFIG_MAPPING[family].from_dict(sizes)
    model = tf.AutoModelForSequenceClassification.from_config(config)
    model.eval().save_pretrained(folder)
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if has_segments else [])]
    tokenizer = tf.AutoTokenizer.from_pretrained(embedded_folder(), model_input_names=names)
    tokenizer.save_pretrained(folder)
    return model


@pytest.fixture(scope="module", params=CASES, ids=[f"{name}-{pair}" for name, pair in CASES])
def regression(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Regression:
    family, is_pair = request.param
    folder = tmp_path_factory.mktemp(family)
    model = write_regression(family, folder / "model")
    columns = {split: columns_of(split, is_pair) for split in ("train", "validation")}
    for split, values in columns.items():
        pandas.DataFrame(values).to_json(folder / f"{split}.jsonl", orient="records", lines=True)
    names = {"text": "a", "label": "label", **({"text_pair": "b"} if is_pair else {})}
    task = {"kind": "pair" if is_pair else "text", "head": "native", "columns": names}
    document = described(
        folder / "model",
        {**task, "metric": "spearman", "slots": SLOTS},
        substitutes=ENCODER_SUBSTITUTES,
        orders=ENCODER_ORDERS,
        keep=KEEP,
        probe_seeds=PROBE_SEEDS,
    )
    study = score_study(document, folder, folder / "store")
    return Regression(model, folder / "model", columns, study)


def test_the_table_of_an_encoder_is_the_same(regression: Regression) -> None:
    expected = by_cell(summarise(regression.study.table))
    measured = by_cell(regression.measured(ENCODER_SUBSTITUTES, ENCODER_ORDERS, KEEP).summary)
    pandas.testing.assert_frame_equal(measured, expected, rtol=0, atol=1e-5)
    assert expected["mean"].nunique() > 8, "negative control: cells differ"


def resampled_scores(results: pandas.DataFrame) -> pandas.DataFrame:
    """The scores of cells with outputs of other texts, a column for each probe seed."""
    is_resampled = (results["constants"] == "resampled_output") & (results["fraction"] < 1)
    cells = results[is_resampled].pivot_table("score", ["order", "fraction"], "seed")
    return cells.sort_index()


def test_each_probe_seed_draws_the_same_texts(regression: Regression) -> None:
    expected = resampled_scores(regression.study.table)
    results = regression.measured(["average", "resampled_output"], ["distance"], [0.5, 0]).results
    measured = resampled_scores(results)
    np.testing.assert_allclose(measured, expected.loc[measured.index], atol=1e-5)
    assert (measured[0] - measured[1]).abs().max() > 1e-3, "negative control: draws differ"


def scores_in_memory(regression: Regression, substitute: object, method: str) -> np.ndarray:
    return regression.measured([substitute], [method], [1]).head_scores["score"].to_numpy()


@pytest.mark.parametrize("method", ENCODER_ORDERS)
def test_scores_of_an_encoder_are_the_same(regression: Regression, method: str) -> None:
    (pair,) = regression.study.pipeline.pairs
    expected = pair.head_scores(regression.study.artifacts)[method].mean.ravel()
    scores = scores_in_memory(regression, "average", method)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    encoder = papa.load_encoder(regression.folder, slots=SLOTS, device="cpu")
    of_layout = papa.average(encoder, regression.columns["train"]["a"], progress=False).matrices
    others = scores_in_memory(regression, of_layout, method)
    assert np.abs(others - expected).max() > 1e-4, "negative control: an average in the layout"
