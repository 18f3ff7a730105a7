"""YAML that a person wrote, or somebody else did: read within limits, and every fault is one sentence."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from papa.errors import SpecError, in_one_line, shortened

_MOST_CHARACTERS = 1_000_000
_MOST_VALUES = 50_000
_MOST_DEPTH = 20
_TEXT = "tag:yaml.org,2002:str"
_PATIENCE_SECONDS = 10.0


def text_of(path: Path) -> str:
    """The text of a file, or of a pipe that somebody writes to.

    Raises:
        OSError: it cannot be read, is something else, or nobody writes to it.
        UnicodeDecodeError: it is not UTF-8.
    """
    mode = path.stat().st_mode
    if not stat.S_ISFIFO(mode):
        if not stat.S_ISREG(mode):
            raise OSError("it is no file")
        return path.read_text(encoding="utf-8")
    # To open a pipe may take for ever; like this it waits for nobody.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as pipe:
        if not select.select([pipe], [], [], _PATIENCE_SECONDS)[0]:
            raise OSError(f"it is a pipe that nobody wrote to within {_PATIENCE_SECONDS:.0f} seconds")
        os.set_blocking(pipe.fileno(), True)
        return pipe.read()


def read_yaml(text: str, origin: str) -> Any:
    """The value that YAML describes.

    Args:
        text: the YAML.
        origin: where it is from, for messages.

    Raises:
        SpecError: it is not YAML, a key is no text or given twice, or it is too large or too deep, its aliases written
            out.
    """
    if len(text) > _MOST_CHARACTERS:
        raise SpecError(
            f"{origin} has {len(text):,} characters, at most {_MOST_CHARACTERS:,} are read: make it shorter"
        )
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check(node, origin, {}, ())
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise SpecError(f"{origin} is not YAML: {in_one_line(error)}") from None
    except RecursionError:
        raise SpecError(f"{origin} is nested too deeply, at most {_MOST_DEPTH} levels are read: flatten it") from None
    except (ValueError, TypeError, OverflowError, AttributeError, LookupError) as error:  # Of an odd tag's value.
        raise SpecError(f"{origin} holds a value that cannot be read ({in_one_line(error)}): correct it") from None


def _check(node: yaml.Node, origin: str, sizes: dict[int, int], above: tuple[int, ...]) -> int:
    """How many values a node holds, its aliases written out; each anchor is counted once and remembered."""
    if id(node) in sizes:
        return sizes[id(node)]
    line = node.start_mark.line + 1
    if id(node) in above:
        raise SpecError(f"{origin}: line {line} holds an alias of itself: write the value out")
    if len(above) > _MOST_DEPTH:
        raise SpecError(f"{origin}: line {line} is nested more than {_MOST_DEPTH} deep: flatten it")
    inside = (*above, id(node))
    size = 1
    if isinstance(node, yaml.SequenceNode):
        size += sum(_check(item, origin, sizes, inside) for item in node.value)
    elif isinstance(node, yaml.MappingNode):
        keys: set[Hashable] = set()
        for key, value in node.value:
            where = f"{origin}: line {key.start_mark.line + 1}"
            if key.tag != _TEXT:
                raise SpecError(f"{where} has a key that is no text: write a name there, or put it in quotes")
            if key.value in keys:
                raise SpecError(f"{where} gives '{shortened(key.value, 60)}' a second time: remove one of them")
            keys.add(key.value)
            size += _check(key, origin, sizes, inside) + _check(value, origin, sizes, inside)
    if size > _MOST_VALUES:
        raise SpecError(
            f"{origin}: line {line} holds more than {_MOST_VALUES:,} values, its aliases written out: make it smaller"
        )
    sizes[id(node)] = size
    return size
