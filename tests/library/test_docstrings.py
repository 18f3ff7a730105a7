"""The reference of the library is complete: every parameter is described."""

import inspect
import re
from collections.abc import Callable

import pytest

import papa

FUNCTIONS = [getattr(papa, name) for name in papa.__all__ if name[0].islower()]
METHODS = [papa.Measurement.heads, papa.ConstantMatrices.plot]


def described(documented: object, section: str) -> list[str]:
    """The names in a section of a docstring, each a line ``name: …`` of the section's indent."""
    text = inspect.getdoc(documented) or ""
    match = re.search(rf"^{section}:\n((?:    .*\n|\n)*)", f"{text}\n", re.M)
    return re.findall(r"^    (\w+): \S", match[1], re.M) if match else []


@pytest.mark.parametrize("function", [*FUNCTIONS, *METHODS], ids=lambda function: function.__name__)
def test_every_parameter_is_described_in_order(function: Callable[..., object]) -> None:
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    assert described(function, "Args") == parameters


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_function_has_an_example(function: Callable[..., object]) -> None:
    assert ">>>" in (inspect.getdoc(function) or "")
    assert "\nRaises:" in (inspect.getdoc(function) or "")


def test_every_field_of_a_task_is_described() -> None:
    assert described(papa.Task, "Attributes") == list(inspect.signature(papa.Task).parameters)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_at_most_two_arguments_are_positional(function: Callable[..., object]) -> None:
    parameters = inspect.signature(function).parameters.values()
    positional = [
        parameter for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    assert len(positional) <= 2
