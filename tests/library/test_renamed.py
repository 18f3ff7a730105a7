"""A call with an earlier name is told today's."""

from collections.abc import Callable
from typing import Any

import pytest

import papa

KEYWORDS: list[tuple[Callable[..., Any], str, str]] = [
    (papa.measure, "encoder", "model"),
    (papa.measure, "dataset", "data"),
    (papa.measure, "constants", "substitutes"),
    (papa.measure, "fractions", "keep"),
    (papa.measure, "seeds", "probe_seeds"),
    (papa.head_scores, "by", "method"),
    (papa.head_scores, "constants", "substitute"),
    (papa.head_scores, "seeds", "ranking_seeds"),
    (papa.head_scores, "made_from", "substitute_data"),
    (papa.ablated, "by", "substitute"),
    (papa.fidelity, "by", "substitute"),
    (papa.fidelity, "made_from", "substitute_data"),
    (papa.constants, "kind", "substitute"),
    (papa.replaced, "constants", "substitute"),
    (papa.constant_heads, "fraction", "keep"),
    (papa.average, "texts", "data"),
    (papa.features, "texts", "data"),
    (papa.describe, "encoder", "model"),
    (papa.describe, "texts", "data"),
    (papa.export, "constants", "substitute"),
]


@pytest.mark.parametrize(("function", "earlier", "today"), KEYWORDS)
def test_an_earlier_keyword_is_told_todays_name(
    function: Callable[..., Any], earlier: str, today: str
) -> None:
    with pytest.raises(papa.PapaError) as error:
        function(None, **{earlier: None})
    assert f"'{earlier}'" in str(error.value)
    assert f"'{today}'" in str(error.value)


@pytest.mark.parametrize("function", [papa.measure, papa.head_scores, papa.fidelity, papa.describe])
def test_a_third_positional_argument_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(papa.PapaError, match="3"):
        function(None, None, None)
