"""A call with an earlier name is told today's."""

from collections.abc import Callable

import pytest

import papa

KEYWORDS: list[tuple[Callable[..., object], str, str]] = [
    (papa.measure, "encoder", "model"),
    (papa.measure, "constants", "substitutes"),
    (papa.head_scores, "by", "method"),
    (papa.head_scores, "made_from", "substitute_data"),
    (papa.ablated, "by", "substitute"),
    (papa.fidelity, "made_from", "substitute_data"),
    (papa.constants, "kind", "substitute"),
    (papa.replaced, "constants", "substitute"),
    (papa.constant_heads, "fraction", "keep"),
    (papa.average, "texts", "data"),
    (papa.features, "texts", "data"),
    (papa.describe, "texts", "data"),
    (papa.export, "constants", "substitute"),
]


@pytest.mark.parametrize(("function", "earlier", "today"), KEYWORDS)
def test_renamed_keyword_is_told(function: Callable[..., object], earlier: str, today: str) -> None:
    with pytest.raises(papa.PapaError) as error:
        function(None, **{earlier: None})
    assert f"'{earlier}'" in str(error.value)
    assert f"'{today}'" in str(error.value)
