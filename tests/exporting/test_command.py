"""``papa export`` from a study that ran: the folder, the report, and what is said when the cell is
not there.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxtyping
import pandas
import pytest
from flows.retrained import FinishedCell, int8_scores
from rich.console import Console

import papa as library
from flows.export import ExportRequest, export_cell
from papa.corpora import load_corpus
from papa.encoders.encoder import load_encoder
from papa.errors import PapaError
from papa.exporting.measuring import TOLERANCE
from papa.reporting.wording import drop_label, score_label
from papa.spec.file import load_study
from papa.study.probe import Probe, read_scores
from papa.study.store import Store
from papa.study.stored import StoredStudy
from tests.finished import finish_study
from tests.flows.conftest import SMALL, Finished, said, words, write_study

pytestmark = pytest.mark.server

STUDY: dict[str, Any] = SMALL | {"orders": ["lambda"], "fractions": [1, 0.5], "seeds": [0, 1]}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, shallow: str) -> Path:
    """A folder with a study and the store it ran in."""
    folder = tmp_path_factory.mktemp("export")
    finish_study(write_study(folder, STUDY | {"encoders": [shallow]}), folder / "store")
    return folder


def export(place: Path, *options: str, to: str) -> Finished:
    study, store = str(place / "study.yaml"), str(place / "store")
    return said("export", study, "--store", store, "--to", str(place / to), *options)


@pytest.fixture(scope="module")
def exported(place: Path) -> Finished:
    options = "--encoder all-MiniLM-L6-v2 --task reviews --constants average --order lambda"
    return export(place, *options.split(), "--fraction", "0.5", to="half")


@pytest.fixture(scope="module")
def summary(place: Path) -> pandas.DataFrame:
    table = pandas.read_csv(place / "store" / "studies" / "small" / "summary.csv")
    return table.set_index("fraction")


def test_writes_a_folder_that_loads_and_says_what_it_cost(place: Path, exported: Finished) -> None:
    assert exported.code == 0, exported.err
    model = library.load_exported(place / "half")
    inputs = model.tokenizer(["a fine film", "dull"], padding=True, return_tensors="pt")
    assert model(**inputs).last_hidden_state.shape == (2, inputs["input_ids"].shape[1], 384)
    for what in (
        "12 of 24",
        "Score (accuracy)",
        "Speed, 1 text ×",
        "on CPU with 1 thread",
        "Embeddings",
        "the study's probe of seed 0; it answers 48 of 48 validation rows as in the study",
    ):
        assert what in " ".join(exported.out.replace("│", " ").split()), what
        assert what in (place / "half" / "README.md").read_text(), what


def test_by_relative_takes_texts_beyond_the_slots(place: Path) -> None:
    finished = export(place, "--fraction", "0.5", "--by", "relative", to="far")
    assert finished.code == 0, finished.err
    model = library.load_exported(place / "far")
    inputs = model.tokenizer(["a fine film " * 60], return_tensors="pt")
    assert inputs["input_ids"].shape[1] > 5 * 32, "beyond the study's slots"
    assert bool(model(**inputs).last_hidden_state.isfinite().all())
    card = (place / "far" / "README.md").read_text()
    for what in ("12 of 24", "relative by distance", "Embeddings", "no limit of S slots"):
        assert what in card, what
    assert "Score (" not in card


@pytest.mark.parametrize("option", [("--fraction", "0.5", "--int8"), ("--max-drop", "1%")])
def test_by_relative_refuses_what_goes_by_slot(place: Path, option: tuple[str, ...]) -> None:
    finished = export(place, "--by", "relative", *option, to="none")
    assert finished.code == 1
    (line,) = words(finished)
    assert "--by relative makes others" in line
    assert not (place / "none").exists()


def test_the_card_and_the_screen_hold_the_studys_verdict(
    place: Path, exported: Finished, summary: pandas.DataFrame
) -> None:
    """Baselines, intervals, the dagger, precision and the rows that were cut, as the study's own
    report has them.
    """
    report = (place / "store" / "studies" / "small" / "report.md").read_text()
    cell, original = summary.loc[0.5], summary.loc[1.0]
    written = [
        score_label(cell["mean"], cell["low"], cell["high"]),
        score_label(original["mean"], original["low"], original["high"]),
        drop_label(cell["relative_drop"], cell["drop_low"], cell["drop_high"]),
        f"always '{cell['one_answer']}' {score_label(cell['always_one_answer'])}",
        "95 % interval",
        "in float32; the folder computes in float32",
        "texts in its 48 validation rows were cut to fit; truncation=True cuts them alike",
    ]
    dagger = "† all-MiniLM-L6-v2, reviews: the original does not beat"
    assert (dagger in report) == (not cell["beats_baseline"])
    for shown in (" ".join(exported.out.split()), (place / "half" / "README.md").read_text()):
        flat = " ".join(shown.replace("│", " ").split())
        for what in written:
            assert what in flat, what
        assert (dagger in flat) == (not cell["beats_baseline"])


def test_the_report_holds_the_studys_scores_and_measured_times(
    place: Path, exported: Finished, summary: pandas.DataFrame
) -> None:
    document = json.loads((place / "half" / "papa.json").read_text())
    score = document["score"]
    assert score["mean"] == pytest.approx(summary.loc[0.5, "mean"])
    assert score["low"] == pytest.approx(summary.loc[0.5, "low"])
    assert score["original"] == pytest.approx(summary.loc[1.0, "mean"])
    assert score["relative_drop"] == pytest.approx(summary.loc[0.5, "relative_drop"])
    assert score["beats_baseline"] == summary.loc[0.5, "beats_baseline"]
    speed = document["speed"]
    assert (speed["threads"], speed["attention"]) == (1, "sdpa")
    for timing in speed["timings"]:
        assert timing["low"] <= timing["ratio"] <= timing["high"]
        assert timing["longest"] <= 32
    fidelity = document["fidelity"]
    assert fidelity["texts"] == 48
    assert 0 < fidelity["nearest_10"]["mean"] < fidelity["cosine"]["mean"] < 1
    assert document["study"] == {
        "name": "small",
        "encoder": "all-MiniLM-L6-v2",
        "task": "reviews",
        "constants": "average",
        "order": "lambda",
        "fraction": 0.5,
    }


def test_int8_is_scored_by_the_studys_probes(place: Path) -> None:
    """Rounding moves the score a little; the drop is from the study's original, paired."""
    stored = StoredStudy(load_study(place / "study.yaml"), Store(place / "store"))
    (cell,) = (cell for cell in stored.cells if cell.fraction == 0.5)
    (step,) = stored.steps.cells[cell]
    assert isinstance(step, Probe)
    assert step.constants is not None
    constants = step.matrices(stored.found[step.constants])
    heads = read_scores(stored.found[step].folder).constant_heads
    corpus = load_corpus(stored.found[step.corpus].folder)
    with Console(quiet=True).status("") as status:
        scored = int8_scores(FinishedCell(stored, cell, step, corpus, constants, heads), status)
    encoder = load_encoder(replace(step.encoder, precision="float32"), int8=True)
    exact = stored.summary(stored.cells).set_index("fraction")["mean"]
    for constant, fraction in ((False, 1.0), (True, 0.5)):
        found = scored(encoder, constant)
        assert found is not None
        assert found["mean"] == pytest.approx(exact[fraction], abs=0.1)
        assert found["low"] < found["mean"] < found["high"]
        assert found["drop"] == pytest.approx(1 - found["mean"] / exact[1.0])
        assert found["drop_low"] <= found["drop"] <= found["drop_high"]


def test_the_command_measures_int_8_in_both_runtimes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each form with score, embeddings and speed, what gains nothing first, on screen as in the
    card."""
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: run 'make setup'")
    from tests.exporting.test_onnx import largest_difference

    # Sizes are symbols while a graph is traced.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    done = export(place, "--fraction", "0.5", "--int8", "--onnx", to="both")
    assert done.code == 0, done.err
    document = json.loads((place / "both" / "papa.json").read_text())
    study = document["score"]["original"]
    for timed in (document["speed"], document["speed"]["onnx"]):
        for way in ("int8", "both"):
            score = timed["int8"][way]["score"]
            assert score["low"] < score["mean"] < score["high"]
            assert score["mean"] == pytest.approx(study, abs=0.25)
            assert score["drop"] == pytest.approx(1 - score["mean"] / study)
            assert timed["int8"][way]["fidelity"]["cosine"]["mean"] > 0.5
    card = (place / "both" / "README.md").read_text()
    screen = " ".join(done.out.replace("│", " ").split())
    for what in (
        "Int8 beside constant heads, in torch",
        "Int8 beside constant heads, in onnxruntime",
        "Int8 alone in onnxruntime",
        "Drop of the score",
    ):
        assert what in screen, what
        assert what in card, what
    assert screen.index("Int8 alone in onnxruntime") < screen.index("Score (accuracy)")
    assert (place / "both" / "model.int8.onnx").is_file()
    model = library.load_exported(place / "both")
    inputs = dict(model.tokenizer(["a fine film", "dull"], padding=True, return_tensors="pt"))
    assert largest_difference(model, place / "both" / "model.onnx", inputs) <= TOLERANCE


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"fraction": 0.25}, "--constants average --order lambda --fraction 1 or 0.5"),
        ({"encoder": "other"}, "has no such cell"),
        ({"order": "random"}, "has no such cell, as it has no order 'random': it has"),
        (
            {"order": "lamda"},
            "it has no order 'lamda' (did you mean 'lambda'?): it has --encoder",
        ),
        ({"constants": "avarage"}, "no constants 'avarage' (did you mean 'average'?)"),
        ({"task": "revews"}, "no task 'revews' (did you mean 'reviews'?)"),
        ({"fraction": 1.0}, "no head is constant"),
        ({"to": "half"}, "is not empty"),
        ({"store": "elsewhere"}, "as it is here has not been run in this store"),
        ({"fraction": 0.0}, "this cell of 'small' has not been run"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(
    place: Path, exported: Finished, wanted: dict[str, Any], sentence: str
) -> None:
    more = ["fractions=[1, 0.5, 0]"] if wanted.get("fraction") == 0 else []
    study = load_study(place / "study.yaml", more)
    wanted = {"to": "new", "store": "store"} | wanted
    to, store = wanted.pop("to"), wanted.pop("store")
    asked = dict.fromkeys(("encoder", "task"), None) | {"constants": "average", "order": "lambda"}
    request = ExportRequest(**asked | {"fraction": 0.5} | wanted)
    with pytest.raises(PapaError) as raised:
        export_cell(study, Store(place / store), request, place / to, Console())
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (place / "new").exists()
    assert not (place / "elsewhere").exists()


def test_a_failed_command_prints_its_sentence_alone(place: Path, exported: Finished) -> None:
    finished = export(place, "--fraction", "0.25", to="new")
    assert finished.code == 1
    (line,) = words(finished)
    assert line.startswith("error: study 'small' has no such cell")
