"""What the source of a forward method says about attention.

transformers has no attribute for these facts: whether a module calls the attention interface, and
whether a layer passes an encoder's states to it.
"""

import ast
import inspect
from functools import lru_cache
from textwrap import dedent
from types import FunctionType

from torch import nn

_STATES_OF_OTHERS = {"encoder_hidden_states", "key_value_states", "cross_attention_states"}
"""Arguments by which a layer passes states of another sequence to its cross-attention."""


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
    """Return whether each child that a forward method calls gets states of another sequence; no
    child where its source is not available.
    """
    try:
        tree = ast.parse(dedent(inspect.getsource(forward)))
    except (OSError, SyntaxError):
        return {}
    children: dict[str, bool] = {}
    for node in ast.walk(tree):
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
