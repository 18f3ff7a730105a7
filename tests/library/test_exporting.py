"""What cannot be exported is refused; the card of what is."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel

import papa
from tests.exported.exports import HEADS, constants, saved, tokenizer_of
from tests.make import random_model


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("family", "heads", "matrices", "expected"),
    [
        ("bert", [], None, "heads"),
        ("bert", [(9, 0)], None, "9"),
        ("bert", HEADS, "zeros", "papa.average"),
        ("gpt2", HEADS, None, "gpt2"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    family: str, heads: list[tuple[int, int]], matrices: Any, expected: str, tmp_path: Path
) -> None:
    model = random_model(family)
    substitute = matrices or constants()
    with pytest.raises(papa.PapaError, match=expected):
        papa.export(
            model, tokenizer_of(), heads=heads, substitute=substitute, folder=tmp_path / "to"
        )
    assert not (tmp_path / "to").exists()


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bert = random_model("bert").float()
    with pytest.raises(papa.PapaError, match=str(tmp_path)):
        papa.export(bert, tokenizer_of(), heads=HEADS, substitute=constants(), folder=tmp_path)


def test_the_card_names_the_heads_and_the_base_but_no_folder(tmp_path: Path) -> None:
    base = tmp_path / "my-base"
    random_model("bert").save_pretrained(base)
    saved(AutoModel.from_pretrained(base), tokenizer_of(), tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    assert "7 of 12 heads constant" in card
    assert "layer 0: 1, 2\n- layer 1: 0, 1, 2, 3\n- layer 2: 0\n" in card
    assert "`my-base`" in card
    for file in (tmp_path / "export").glob("*.[jm]*"):
        assert str(tmp_path) not in file.read_text(), file
