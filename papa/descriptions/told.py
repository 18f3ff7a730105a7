"""Descriptions as short tables with their numbers written out, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt

import pandas as pd

from papa.descriptions.relations import picked
from papa.descriptions.similarity import heads_by_cluster

SHOWN = 15
"""Relations in a table at most, the most frequent ones."""
ALIKE = 10
"""Pairs in a table at most, and clusters of one attention."""
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
    """A table for each description, encoder and task; those of a study have columns ``encoder`` and
    ``task``.
    """
    for name, frame in frames.items():
        for prefix, own in by_task(frame):
            if "relation" in own:
                yield _by_relation(prefix + name, own)
                continue
            yield _by_layer(prefix + name, own)
            if "cluster" in own and len(own):
                yield _pairs(prefix + name, own)
                yield _clusters(prefix + name, own)


def by_task(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each encoder and task, and what names them in a heading."""
    if "task" not in frame:
        yield "", frame
        return
    for (encoder, task), own in frame.groupby(["encoder", "task"], sort=False):
        yield f"{encoder} · {task} · ", own


def _by_layer(name: str, frame: pd.DataFrame) -> Told:
    if "other_layer" in frame:
        frame = frame[frame["layer"] == frame["other_layer"]]
    measured = frame.dropna(axis="columns", how="all")
    measures = [column for column in measured if frame[column].dtype.kind == "f"]
    attentions = list(frame["attention"].unique())
    means = frame.groupby(["layer", "attention"], sort=False)[measures].mean()
    rows = [
        [
            measure,
            str(layer),
            *(f"{means.loc[(layer, attention), measure]:z.3f}" for attention in attentions),
        ]
        for measure in measures
        for layer in frame["layer"].unique()
    ]
    if "largest" in measures:
        most = means["largest"].groupby("attention").max()
        rows.append(["largest", "most", *(f"{most[attention]:.3f}" for attention in attentions)])
    pairs = " Pairs of heads within a layer." if "other_layer" in frame else ""
    return Told(
        f"{name}: means by layer",
        f"The mean over heads, where a measure is of heads.{pairs}",
        ["Measure", "Layer", *attentions],
        rows,
    )


def _pairs(name: str, frame: pd.DataFrame) -> Told:
    """The pairs of heads whose own attention is most alike."""
    parts = dict(tuple(frame.groupby("attention", sort=False)))
    order = next(iter(parts.values()))["divergence"].argsort(kind="stable")[:ALIKE]
    shown = [part.iloc[order] for part in parts.values()]
    first = shown[0]
    pairs = zip(*(first[at] for at in ("layer", "head", "other_layer", "other_head")), strict=True)
    measured = (
        [
            f"{apart:.3f} · {alike:z.2f}"
            for apart, alike in part[["divergence", "cosine"]].to_numpy()
        ]
        for part in shown
    )
    rows = [
        [f"{layer}.{head} · {other}.{its}", *texts]
        for (layer, head, other, its), texts in zip(pairs, zip(*measured, strict=True), strict=True)
    ]
    return Told(
        f"{name}: the most alike heads",
        f"The {len(rows)} pairs with the least divergence of their own attention, as layer.head: "
        "the divergence, and the cosine of the outputs.",
        ["Pair", *parts],
        rows,
    )


def _clusters(name: str, frame: pd.DataFrame) -> Told:
    rows = []
    for of, own in frame[frame["attention"] != "replaced"].groupby("attention", sort=False):
        heads = heads_by_cluster(own).groupby("cluster")["name"].agg(list)
        mean = own[own["cluster"] == own["other_cluster"]].groupby("cluster")["divergence"].mean()
        largest = heads[mean.index].map(len).sort_values(ascending=False, kind="stable")
        rows += [
            [str(of), str(cluster), str(count), f"{mean[cluster]:.3f}", " ".join(heads[cluster])]
            for cluster, count in largest[:ALIKE].items()
        ]
    return Told(
        f"{name}: clusters of heads",
        f"At most the {ALIKE} largest of two heads or more, with the mean divergence within. "
        "Heads whose average linkage is within half the mean divergence of all pairs are together.",
        ["Attention", "Cluster", "Heads", "Divergence", "Layer.head"],
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
