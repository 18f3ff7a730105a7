"""A measurement's tables, as they print."""

import numpy as np
import pandas

from papa.library.measurement import HeadsFrame

HEADS = tuple((int(layer), int(head)) for layer, head in np.ndindex(6, 12))


def test_many_heads_print_as_the_first_and_the_last() -> None:
    frame = HeadsFrame({"heads": [HEADS, HEADS[:1], None], "verdict": ["within"] * 3})
    for text in (repr(frame), frame.to_string(), str(frame._repr_html_())):
        assert all(head in text for head in ("L0H1", "L5H11", "within"))
        assert "L0H2" not in text
    assert frame["heads"].tolist() == [HEADS, HEADS[:1], None]
    assert type(frame[frame["verdict"] == "within"]) is pandas.DataFrame
