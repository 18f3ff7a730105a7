"""What a door may answer: a right result, or one sentence that a person can act on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import settings

from papa.errors import CheckError, PapaError

Result = TypeVar("Result")
LONGEST = 1200
"""Characters of a sentence: paths and lists of known names are long, values that somebody gave are
cut.
"""
_RAW = re.compile(r"Traceback|\[Errno|object at 0x|<class '\w")
"""One long text: Hypothesis draws the short ones of our own files, such as ``_CLASS`` in
``papa/errors.py``, and errors quote them.
"""


def one_sentence(error: PapaError) -> str:
    """The error's message, after a look whether it is one line, short, and says it in words.

    Raises:
        AssertionError: it is not.
    """
    sentence = str(error)
    assert sentence.strip(), "an error says nothing"
    if not isinstance(error, CheckError):
        assert len(sentence.splitlines()) == 1, f"more than one line: {sentence[:500]!r}"
        assert sentence.isprintable(), f"not printable: {sentence[:500]!r}"
    assert len(sentence) <= LONGEST, f"{len(sentence):,} characters: {sentence[:500]!r}"
    assert not (raw := _RAW.search(sentence)), f"{raw}: {sentence[:500]!r}"
    return sentence


def result_or_sentence(read: Callable[[], Result], *named: str) -> Result | None:
    """What ``read`` returns; None where it refused in one sentence, with what is ``named`` in it.
    Whatever else it raises fails the test.
    """
    try:
        return read()
    except PapaError as error:
        sentence = one_sentence(error)
    for name in named:
        assert name in sentence, f"{name!r} is not in {sentence!r}"
    return None


def times(factor: float) -> Any:
    """So many times as many examples as the profile says, for doors that open slowly or quickly."""
    return settings(max_examples=max(1, int(settings.default.max_examples * factor)))
