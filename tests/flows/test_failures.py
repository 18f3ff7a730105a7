"""The error of a study whose steps failed."""

from __future__ import annotations

import copy

from papa.errors import DamagedError, DataError
from papa.flows.stages import failure_of


def test_the_failure_of_a_step_keeps_its_class_and_names_the_step() -> None:
    failure = failure_of({"tokenise · cola": DataError("row 3 has no text")})
    assert isinstance(failure, DataError)
    assert "tokenise · cola" in str(failure)
    assert "row 3 has no text" in str(failure)


def test_the_failure_of_a_study_is_that_of_its_first_step() -> None:
    failure = failure_of({"first": DataError("one"), "second": DamagedError("two", "/store")})
    assert isinstance(failure, DataError)
    assert "1 more" in str(failure)


def test_an_error_that_is_no_users_is_the_cause_of_the_failure() -> None:
    error = ZeroDivisionError("division by zero")
    failure = failure_of({"probe · cola": error})
    assert failure.__cause__ is error
    assert "ZeroDivisionError" in str(failure)


def test_a_failure_that_another_process_reads_says_the_same() -> None:
    failure = failure_of({"probe · cola": DamagedError("scores.json is damaged", "/store/probe")})
    # Copied as it is pickled.
    assert str(copy.copy(failure)) == str(failure)
