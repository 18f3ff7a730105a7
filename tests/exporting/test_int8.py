"""Int8 beside constant heads: a folder that loads in it, and what is said of the choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import papa
from papa.encoders.encoder import Encoder
from papa.errors import SpecError
from papa.exporting import export_encoder, speed
from papa.exporting.choice import choices
from papa.exporting.document import ExportDocument
from tests.exporting.conftest import Case


def states(model: Any, *texts: list[str]) -> torch.Tensor:
    found: torch.Tensor = model(
        **model.tokenizer(*texts, padding=True, return_tensors="pt")
    ).last_hidden_state
    return found


@pytest.mark.parametrize(("family", "kind"), [("minilm", "text"), ("roberta", "pair")])
def test_a_folder_loads_in_int8(
    make_case: Callable[..., Case], family: str, kind: str, tmp_path: Path
) -> None:
    """It is the export but for the rounding, which is another change than that of one more
    constant head."""
    case = make_case(family, kind)
    for name, heads in (("export", case.some_heads()), ("other", case.some_heads()[1:])):
        export_encoder(case.reference, case.constants, heads, case.layout, tmp_path / name)
    exact, rounded, other = (
        states(papa.load_exported(tmp_path / name, int8=int8), *case.texts)
        for name, int8 in (("export", False), ("export", True), ("other", False))
    )
    error = float((rounded - exact).norm() / exact.norm())
    assert 1e-3 < error < 0.25
    assert error < float((other - rounded).norm() / exact.norm())


def test_int8_stays_where_it_is(written: Path) -> None:
    model = papa.load_exported(written, int8=True)
    before = states(model, ["the facts"])
    assert torch.equal(states(model.to("cpu").float(), ["the facts"]), before)
    with pytest.raises(SpecError, match=r"takes and gives float32, not torch\.float16"):
        model.half()
    with pytest.raises(SpecError, match="int8 runs on a CPU, not on meta"):
        model.to("meta")
    assert torch.equal(states(model, ["the facts"]), before)


def test_the_folder_says_what_each_costs_and_gains(
    small: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "BUDGET", 0.0)
    asked: list[bool] = []

    def scored(encoder: Encoder, constant: bool) -> Mapping[str, float]:
        assert encoder.int8
        asked.append(constant)
        drop = 0.3 if constant else 0.015
        return {"mean": 0.7, "low": 0.6, "high": 0.8} | dict.fromkeys(
            ("drop", "drop_low", "drop_high"), drop
        )

    written = {"score": "0.8", "drop": "1 %", "original": "0.81", "baselines": {}, "notes": [""]}
    found = export_encoder(
        small.reference,
        small.constants,
        small.some_heads(),
        small.layout,
        tmp_path / "export",
        examples=small.split,
        score={
            "metric": "accuracy",
            "beats_baseline": True,
            "written": written,
            "seeds": 2,
            "cut": 0,
            "rows": 5,
            "precision": "float32",
            **dict.fromkeys(("mean", "low", "high"), 0.8),
            **dict.fromkeys(("relative_drop", "drop_low", "drop_high"), 0.06),
        },
        int8=scored,
    )
    assert asked == [False, True]
    (choice,) = choices(found)
    rows = {row[0]: row[1:] for row in choice.rows}
    assert rows["Score (accuracy)"] == ("0.81", "0.800 ± 0.000", "0.700 ± 0.100", "0.700 ± 0.100")
    assert rows["Drop of the score"] == ("–", "6.0 %", "1.5 %", "30.0 %")
    cosines = [float(cell.split(" ")[0]) for cell in rows["Cosine to the original's"]]
    assert cosines[1] < cosines[2] <= 1, "rounding changes less than random constants"
    assert any(name.startswith("Speed, 1 text × ") for name in rows)
    card = (tmp_path / "export" / "README.md").read_text()
    assert "## Int8 beside constant heads, in torch" in card
    assert "| Which one | the fastest at 1 text × " in card
    assert papa.load_exported(tmp_path / "export").document == found


def timing(batch: int, ratio: float) -> dict[str, Any]:
    size = {"batch": batch, "longest": 20, "original_seconds": 0.01, "exported_seconds": 0.01}
    return {**size, "ratio": ratio, "low": ratio - 0.1, "high": ratio + 0.1, "pairs": 6}


def document(
    int8: tuple[float, float], both: tuple[float, float], drop: float, *, beats: bool = True
) -> ExportDocument:
    """One of two sizes, where int8 alone drops by 0.5 % at most and both by ``drop``."""

    def way(ratios: tuple[float, float], drop_high: float) -> dict[str, Any]:
        return {
            "speed": {"timings": [timing(1, ratios[0]), timing(16, ratios[1])], "left_out": []},
            "fidelity": None,
            "score": {"drop_high": drop_high},
        }

    numbers = dict.fromkeys(("mean", "low", "high", "relative_drop", "drop_low"), 0.1)
    return ExportDocument(
        encoder={"layers": 2, "heads": 2},
        layout={},
        heads=((0, 0),),
        constants="average",
        study={},
        score={
            **numbers,
            "drop_high": 0.015,
            "metric": "accuracy",
            "beats_baseline": beats,
            "written": {"original": "0.8"},
        },
        speed={
            **way((1.0, 1.5), 0.0)["speed"],
            "int8": {"int8": way(int8, 0.005), "both": way(both, drop)},
        },
        fidelity=None,
        size={"weights": 1, "original_weights": 2, "constants": 1},
    )


def test_where_constant_heads_add_nothing_is_said_first() -> None:
    (found,) = choices(document(int8=(2.0, 2.0), both=(2.1, 3.0), drop=0.04))
    assert found.sentences[0] == (
        "Constant heads beside int8",
        "no sure gain over int8 alone at 1 text × 20 tokens; both are surely faster at the others",
    )
    (found,) = choices(document(int8=(2.0, 3.0), both=(2.1, 2.0), drop=0.04))
    assert found.sentences[0][1] == "no sure gain over int8 alone at any size measured"
    (found,) = choices(document(int8=(2.0, 2.0), both=(3.0, 3.0), drop=0.04))
    assert found.sentences[0][1] == "both are surely faster than int8 alone at every size"


def test_the_fastest_is_named_for_each_budget() -> None:
    (found,) = choices(document(int8=(2.0, 2.0), both=(2.1, 3.0), drop=0.04))
    assert dict(found.sentences)["Which one"] == (
        "the fastest at 16 texts × 20 tokens whose drop is surely within 1.0 %: int8 (2.00×); "
        "5.0 %: both (3.00×)"
    )
    (found,) = choices(document(int8=(1.0, 1.0), both=(1.0, 1.0), drop=0.5))
    assert "within 1.0 %: the original; 2.0 %: constant (1.50×)" in str(found.sentences)
    (found,) = choices(document(int8=(2.0, 2.0), both=(2.1, 3.0), drop=0.04, beats=False))
    assert "Which one" not in dict(found.sentences), "no drop is known of such a probe"
