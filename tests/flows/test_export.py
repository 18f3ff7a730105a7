"""``papa export`` and ``papa describe``: what they write, and their refusals in one sentence."""

import json
from pathlib import Path
from typing import Any

import pandas
import pytest
from transformers import AutoModel, AutoTokenizer

import papa
from papa.heads.constants import ConstantMatrices
from papa.storage.store import Store
from papa.tasks.manifest import FinishedStudy, open_study
from tests.finished import finish_study
from tests.flows.conftest import SMALL, Finished, invoke, refusal, write_study
from tests.make import outputs_of

PROBE = {"learning_rate": 5e-4, "batch_size": 16, "epochs": 3}
TASK = {"name": "reviews", "slots": 32, "train_rows": 300, "validation_rows": 200, "probe": PROBE}
STUDY: dict[str, Any] = SMALL | {
    "tasks": [TASK],
    "orders": ["first_to_last", "random"],
    "keep": [1, 0.833, 0.5],
}
TEXTS = ["a fine film", "dull", "nobody would want to see this one again, or would they?"]
ENCODER = "embedded/all-MiniLM-L6-v2"
FIRST_HEADS = ("--order", "first_to_last")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, shallow: str) -> FinishedStudy:
    folder = tmp_path_factory.mktemp("export")
    finish_study(write_study(folder, STUDY | {"encoders": [shallow]}), folder / "store")
    return open_study(Store(folder / "store"), "small")


def export(study: FinishedStudy, *options: str, to: Path) -> Finished:
    return invoke("export", "small", "--store", study.store.address, "--to", str(to), *options)


@pytest.mark.server
def test_the_only_cell_is_the_default(tiny: tuple[str, Path], tmp_path: Path) -> None:
    to = ("--to", str(tmp_path / "to"))
    done = invoke("export", "small", "--store", str(tiny[1]), "--keep", "0.5", *to)
    assert done.code == 0, done.err
    assert "average" in (tmp_path / "to" / "README.md").read_text()


def test_one_of_several_orders_must_be_named(study: FinishedStudy, tmp_path: Path) -> None:
    line = refusal(export(study, "--keep", "0.5", to=tmp_path / "to"))
    assert all(name in line for name in ("--order", "first_to_last", "random"))


@pytest.mark.server
def test_of_a_native_head_the_default_order_is_effect(shallow: str, tmp_path: Path) -> None:
    native = TASK | {"head": "native", "metric": "cosine", "base": "reviews"}
    native |= {"train_rows": 8, "validation_rows": 8}
    design = {"encoders": [shallow], "tasks": [native], "orders": ["random", "effect"]}
    finish_study(write_study(tmp_path, STUDY | design), tmp_path / "store")
    finished = open_study(Store(tmp_path / "store"), "small")
    done = export(finished, "--keep", "0.5", to=tmp_path / "to")
    assert done.code == 0, done.err
    assert "effect" in (tmp_path / "to" / "README.md").read_text()


@pytest.mark.server
def test_a_cell_is_written_as_measured(study: FinishedStudy, shallow: str, tmp_path: Path) -> None:
    done = export(study, *FIRST_HEADS, "--keep", "0.5", to=tmp_path)
    assert done.code == 0, done.err
    cells = study.manifest.cells
    (cell,) = (cell for cell in cells if cell.line[3] != "random" and cell.fraction == 0.5)
    constants_artifact = study.artifact(str(cell.probes[0].constants))
    encoder = papa.load_encoder(shallow, slots=32, device="cpu")
    constants = ConstantMatrices.load(constants_artifact)
    heads = cell.constant_heads
    assert heads == tuple((0, head) for head in range(12))
    with papa.replaced(encoder, heads, substitute=constants):
        expected = [text[:, -1] for text in papa.features(encoder, TEXTS, progress=False)]
    model = AutoModel.from_pretrained(tmp_path)
    tokens = AutoTokenizer.from_pretrained(tmp_path)
    inputs = tokens(TEXTS, padding=True, truncation=True, return_tensors="pt")
    hidden_states = outputs_of(model, inputs).last_hidden_state
    masks = inputs["attention_mask"].bool()
    for text, mask, states in zip(hidden_states, masks, expected, strict=True):
        assert (text[mask] - states).abs().max() < 1e-5
    row = study.summary.set_index(["order", "fraction"]).loc[("first_to_last", 0.5)]
    card = (tmp_path / "README.md").read_text()
    mean, original = (f"{row[name]:.3f} ± " for name in ("mean", "original"))
    for phrase in ("12 of 24 heads constant", mean, original):
        assert phrase in card, phrase


@pytest.mark.server
def test_most_heads_within_a_drop(study: FinishedStudy, tmp_path: Path) -> None:
    rows = study.summary[study.summary["order"] == "first_to_last"].set_index("fraction")
    assert not any(rows["reason"]), "the study can tell"
    few = rows.loc[0.833, "drop_high"]
    larger_drop = rows.loc[0.5, "drop_high"]
    of_few = 0.833 if larger_drop > few else 0.5
    for share, expected in ((few, of_few), (max(few, larger_drop), 0.5)):
        to = tmp_path / f"{share}"
        limit = ("--max-drop", f"{100 * (share + 1e-6):.6f}%")
        done = export(study, *FIRST_HEADS, *limit, to=to)
        assert done.code == 0, done.err
        assert json.loads((to / "config.json").read_text())["study"]["fraction"] == expected
        finished = invoke("heads", "small", "--store", study.store.address, "--json", *limit)
        answers = {answer["order"]: answer for answer in json.loads(finished.out)["answers"]}
        assert answers["first_to_last"]["constant_heads"] == {0.833: 4, 0.5: 12}[expected]
    smaller = ("--max-drop", f"{few - 1e-6:.6f}")
    line = refusal(export(study, *FIRST_HEADS, *smaller, to=tmp_path / "none"))
    assert "0.9167" in line
    drawn = export(study, "--keep", "0.5", "--order", "random", to=tmp_path / "none")
    assert "order 'random'" in refusal(drawn)
    assert not (tmp_path / "none").exists()


def test_an_encoder_is_described_on_texts(tmp_path: Path) -> None:
    texts = str(tmp_path / "texts.txt")
    Path(texts).write_text("A fine film.\nDull, and then it ends.\n")
    options = ("--only", "separators", "--only", "flow", "--out", str(tmp_path / "out.parquet"))
    finished = invoke("describe", "--encoder", ENCODER, "--text", texts, *options)
    assert "separators: means by layer" in finished.out
    assert "texts.txt" in finished.out, "what was looked at"
    descriptions = pandas.read_parquet(tmp_path / "out.parquet")
    sizes = descriptions.groupby("description").size().to_dict()
    assert sizes == {"separators": 2 * 216, "flow": 3 * 4}
    assert descriptions.attrs["texts"][0]["texts"] == 2
