"""What the source of a forward method says about attention.

transformers has no attribute for these facts: whether a module calls the attention interface, which
arguments it passes, and whether a layer passes an encoder's states to it.
"""

import ast
import inspect
import re
from functools import lru_cache
from textwrap import dedent
from types import FunctionType
from typing import NamedTuple

from torch import nn

from papa.models.dispatch import is_served

_STATES_OF_OTHERS = {"encoder_hidden_states", "key_value_states", "cross_attention_states"}
"""Arguments by which a layer passes states of another sequence to its cross-attention."""
_SPARSE_INDICES = "indices"
"""Which keys each query sees, in models whose indexer chooses them. They put that into the mask for
transformers' own functions, and pass it to every other function, as ours is.
"""


def calls_attention_interface(module: nn.Module) -> bool:
    """Return whether a module looks its attention function up in transformers' interface."""
    return "ALL_ATTENTION_FUNCTIONS" in _forward_of(module).__code__.co_names


def _forward_of(module: nn.Module) -> FunctionType:
    """Return the forward method of a module's class, without decorators."""
    forward = inspect.unwrap(type(module).forward)
    assert isinstance(forward, FunctionType)
    return forward


def passes_other_states(module: nn.Module, attribute: str) -> bool | None:
    """Return whether a module calls its child with states of another sequence.

    None where its forward method does not call ``self.attribute``, as for modules in a list.
    """
    return _children_called(_forward_of(module)).get(attribute)


@lru_cache
def _children_called(forward: FunctionType) -> dict[str, bool]:
    """Return whether each child that a forward method calls gets states of another sequence."""
    children: dict[str, bool] = {}
    for node in _forward_nodes(forward):
        if not isinstance(node, ast.Call):
            continue
        callee = ast.unparse(node.func)
        if not callee.startswith("self."):
            continue
        child = callee.removeprefix("self.")
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        gets_states = any(ast.unparse(value) in _STATES_OF_OTHERS for value in values)
        by_name = any(
            keyword.arg in _STATES_OF_OTHERS and ast.unparse(keyword.value) != "None"
            for keyword in node.keywords
        )
        children[child] = children.get(child, False) or gets_states or by_name
    return children


@lru_cache
def _forward_nodes(forward: FunctionType) -> list[ast.AST]:
    """Return the nodes of a forward method; none where its source is not available."""
    try:
        source = inspect.getsource(forward)
        return [*ast.walk(ast.parse(dedent(source)))]
    except (OSError, SyntaxError):
        return []


def unserved_arguments(module: nn.Module) -> list[str]:
    """Return what a module always passes to its attention function and rules ignore.

    An argument that may be None in a forward pass is checked there (``papa.models.dispatch``).
    """
    return [
        argument.name
        for argument in _unknown_arguments(_forward_of(module))
        if argument.attribute is None or getattr(module, argument.attribute, None) is not None
    ]


class _Argument(NamedTuple):
    """An argument of an attention function, and the module's attribute that is its value."""

    name: str
    attribute: str | None


@lru_cache
def _unknown_arguments(forward: FunctionType) -> list[_Argument]:
    """Return the arguments that ``forward`` passes to the attention function and that the dispatch
    does not support.
    """
    nodes = _forward_nodes(forward)
    may_be_none = {
        ast.unparse(node.targets[0])
        for node in nodes
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == "None"
    }
    arguments: list[_Argument] = []
    for node in nodes:
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "attention_interface":
            continue
        for keyword in node.keywords:
            value = ast.unparse(keyword.value)
            if keyword.arg is None or is_served(keyword.arg):
                continue
            if value in may_be_none and keyword.arg != _SPARSE_INDICES:
                continue
            attribute = re.fullmatch(r"self\.(\w+)", value)
            arguments.append(_Argument(keyword.arg, attribute[1] if attribute else None))
    return arguments
