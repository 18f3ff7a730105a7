"""Descriptions as short tables with their numbers written out, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt

import pandas as pd

from papa.descriptions.relations import picked

SHOWN = 15
"""Relations in a table at most, the most frequent ones."""
_Z = 1.96


@dataclass(frozen=True)
class Told:
    """A table of one description.

    Attributes:
        heading: what it shows, and of which encoder and task, where there are several.
        note: how to read it.
        headings: one per column.
        rows: as many texts in each row.
    """

    heading: str
    note: str
    headings: list[str]
    rows: list[list[str]]


def told(frames: Mapping[str, pd.DataFrame]) -> Iterator[Told]:
    """A table for each description, encoder and task.

    Args:
        frames: by name of the description, with the columns ``encoder`` and ``task`` where they are
            a study's.
    """
    for name, frame in frames.items():
        for prefix, own in _places(frame):
            yield (
                _by_relation(prefix + name, own)
                if "relation" in own
                else _by_layer(prefix + name, own)
            )


def _places(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    if "task" not in frame:
        yield "", frame
        return
    for (encoder, task), own in frame.groupby(["encoder", "task"], sort=False):
        yield f"{encoder} · {task} · ", own


def _by_layer(name: str, frame: pd.DataFrame) -> Told:
    if "other_layer" in frame:
        frame = frame[frame["layer"] == frame["other_layer"]]
    measures = [column for column in frame if frame[column].dtype.kind == "f"]
    attentions = list(frame["attention"].unique())
    means = frame.groupby(["layer", "attention"], sort=False)[measures].mean()
    rows = [
        [
            measure,
            str(layer),
            *(f"{means.loc[(layer, attention), measure]:.3f}" for attention in attentions),
        ]
        for measure in measures
        for layer in frame["layer"].unique()
    ]
    pairs = " Pairs of heads within a layer." if "other_layer" in frame else ""
    return Told(
        f"{name}: means by layer",
        f"The mean over heads, where a measure is of heads.{pairs}",
        ["Measure", "Layer", *attentions],
        rows,
    )


def _by_relation(name: str, frame: pd.DataFrame) -> Told:
    frame = frame[frame["attention"] != "replaced"]
    words = frame.groupby("relation")["words"].first().sort_values(ascending=False, kind="stable")
    attentions = list(frame["attention"].unique())
    by = dict(tuple(frame.groupby(["relation", "attention"])))
    rows = []
    for relation in words.index[:SHOWN]:
        count = int(words[relation])
        own = [by[relation, attention] for attention in attentions]
        baseline = interval(own[0]["baseline"].iloc[0], count)
        rows.append([relation, str(count), baseline, *(_best(heads, count) for heads in own)])
    return Told(
        f"{name}: the best head for each relation",
        "The share of words whose gold head is found, with its 95 % interval over words (Wilson). "
        "The best head, direction or position is picked in every other sentence and counted in "
        "the rest, and the reverse. Layer.head: that with the most words found. Constants are the "
        "same in the replaced model.",
        ["Relation", "Words", "position alone", *attentions],
        rows,
    )


def _best(frame: pd.DataFrame, words: int) -> str:
    """The cross-counted share of the best head, and which head it is."""
    second = frame["correct_in_half"].to_numpy()
    halves = [frame["correct"].to_numpy() - second, second]
    in_half = int(frame["words_in_half"].iloc[0])
    share = picked(halves, [words - in_half, in_half]) / words
    first = frame.iloc[int(frame["correct"].argmax())]
    return f"{interval(share, words)} {first['layer']}.{first['head']}"


def interval(share: float, words: int) -> str:
    """A share with its Wilson interval, 95 %."""
    spread = _Z * sqrt(share * (1 - share) / words + _Z**2 / (4 * words**2))
    centre, scale = share + _Z**2 / (2 * words), 1 + _Z**2 / words
    low, high = max((centre - spread) / scale, 0.0), min((centre + spread) / scale, 1.0)
    return f"{share:.2f} [{low:.2f}, {high:.2f}]"
