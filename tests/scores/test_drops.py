"""The largest drop that a user allows, as it is written."""

import pytest

from papa.errors import SpecError
from papa.scores.drops import MaxDrop


@pytest.mark.parametrize("value", ["", "x", "100%", "-1%", "nan", "-1nats", "infnats"])
def test_what_is_no_limit_of_a_drop_is_refused(value: str) -> None:
    with pytest.raises(SpecError, match="--max-drop"):
        MaxDrop.parse(value, "--max-drop")
