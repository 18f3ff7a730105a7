"""Descriptions as short tables with their numbers written out, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan, sqrt
from typing import Any

import numpy as np
import pandas as pd

from papa.descriptions.means import HALF
from papa.descriptions.relations import picked
from papa.descriptions.seen import TEXTS
from papa.descriptions.similarity import heads_by_cluster
from papa.reporting.written import WrittenTable
from papa.spec.orders import order_named

SHOWN = 15
"""Relations in a table at most, the most frequent ones."""
ALIKE = 10
"""Pairs in a table at most, and clusters of one attention."""
_Z = 1.96


def described_tables(frames: Mapping[str, pd.DataFrame]) -> Iterator[WrittenTable]:
    """What the descriptions are of, and a table for each, encoder and task; those of a study have
    columns ``encoder`` and ``task``.
    """
    if any(TEXTS in frame.attrs for frame in frames.values()):
        yield _of_texts(frames)
    for name, frame in frames.items():
        for prefix, own in by_task(frame):
            if "relation" in own:
                yield _by_relation(prefix + name, own)
                continue
            yield _by_layer(prefix + name, own)
            if "cluster" in own and len(own):
                yield _pairs(prefix + name, own)
                yield _clusters(prefix + name, own)


def _of_texts(frames: Mapping[str, pd.DataFrame]) -> WrittenTable:
    rows = [
        [name, *_written(record)]
        for name, frame in frames.items()
        for record in frame.attrs.get(TEXTS, ())
    ]
    note = "Left out: sentences with more tokens than fit. Constant heads: in the replaced model."
    headings = ["Description", "Corpus", "Texts", "Tokens", "Left out", "Constant heads"]
    return WrittenTable("What was looked at", headings, rows, note)


def _written(record: Mapping[str, Any]) -> list[str]:
    named = [record.get(key) for key in ("encoder", "task", "source")]
    counts = [f"{record[count]:,}" for count in ("texts", "tokens", "left_out")]
    heads = f"{record['constant_heads']} of {record['heads']}"
    if order := record.get("order"):
        heads += f" ({order_named(order).label}, fraction {record['fraction']:g})"
    return [" · ".join(filter(None, named)) or "the texts given", *counts, heads]


def distinct(frame: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Without the rows of "replaced" where they are those of "constant", as all heads are."""
    of = frame["attention"]
    constant, replaced = (frame.loc[of == name, measure] for name in ("constant", "replaced"))
    return frame[of != "replaced"] if np.allclose(constant, replaced, atol=1e-9) else frame


def by_task(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each encoder and task, and what names them in a heading where it must."""
    if "task" not in frame or len(frame[["encoder", "task"]].drop_duplicates()) < 2:
        yield "", frame
        return
    for (encoder, task), own in frame.groupby(["encoder", "task"], sort=False):
        yield f"{encoder} · {task} · ", own


def _by_layer(name: str, frame: pd.DataFrame) -> WrittenTable:
    if "other_layer" in frame:
        frame = frame[frame["layer"] == frame["other_layer"]]
    measured = frame.dropna(axis="columns", how="all")
    numbers = [column for column in measured if frame[column].dtype.kind == "f"]
    measures = [column for column in numbers if not column.endswith(HALF)]
    attentions = list(frame["attention"].unique())
    means = frame.groupby(["layer", "attention"], sort=False)[numbers].mean()

    def written(layer: Any, attention: str, measure: str) -> str:
        own = means.loc[(layer, attention)]
        return _with_half(own[measure], own.get(measure + HALF))

    rows = [
        [measure, str(layer), *(written(layer, of, measure) for of in attentions)]
        for measure in measures
        for layer in frame["layer"].unique()
    ]
    if "largest" in measures:
        most = means["largest"].groupby("attention").idxmax()
        rows.append(
            ["largest", "most", *(written(most[of][0], of, "largest") for of in attentions)]
        )
    pairs = " Pairs of heads within a layer." if "other_layer" in frame else ""
    note = (
        f"The mean over heads, where a measure is of heads.{pairs} ±: the 95 % interval over "
        "texts; that of a mean over heads is at most so wide."
    )
    return WrittenTable(f"{name}: means by layer", ["Measure", "Layer", *attentions], rows, note)


def _with_half(mean: float, half: float | None, digits: int = 3) -> str:
    """A mean with half the width of its interval, where it has one."""
    known = half is not None and not isnan(half)
    return f"{mean:z.{digits}f}" + (f" ± {half:.{digits}f}" if known else "")


def _pairs(name: str, frame: pd.DataFrame) -> WrittenTable:
    """The pairs of heads whose own attention is most alike."""
    parts = dict(tuple(frame.groupby("attention", sort=False)))
    order = next(iter(parts.values()))["divergence"].argsort(kind="stable")[:ALIKE]
    shown = [part.iloc[order] for part in parts.values()]
    first = shown[0]
    pairs = zip(*(first[at] for at in ("layer", "head", "other_layer", "other_head")), strict=True)
    measured = (
        [
            f"{_with_half(row['divergence'], row.get('divergence' + HALF))} · {row['cosine']:z.2f}"
            for row in part.to_dict("records")
        ]
        for part in shown
    )
    rows = [
        [f"{layer}.{head} · {other}.{its}", *texts]
        for (layer, head, other, its), texts in zip(pairs, zip(*measured, strict=True), strict=True)
    ]
    note = (
        f"The {len(rows)} pairs with the least divergence of their own attention, as layer.head: "
        "the divergence, and the cosine of the outputs."
    )
    return WrittenTable(f"{name}: the most alike heads", ["Pair", *parts], rows, note)


def _clusters(name: str, frame: pd.DataFrame) -> WrittenTable:
    rows = []
    for of, own in distinct(frame, "divergence").groupby("attention", sort=False):
        heads = heads_by_cluster(own).groupby("cluster")["name"].agg(list)
        mean = own[own["cluster"] == own["other_cluster"]].groupby("cluster")["divergence"].mean()
        largest = heads[mean.index].map(len).sort_values(ascending=False, kind="stable")
        rows += [
            [str(of), str(cluster), str(count), f"{mean[cluster]:.3f}", " ".join(heads[cluster])]
            for cluster, count in largest[:ALIKE].items()
        ]
    note = (
        f"At most the {ALIKE} largest of two heads or more, with the mean divergence within. "
        "Heads whose average linkage is within half the mean divergence of all pairs are together."
    )
    headings = ["Attention", "Cluster", "Heads", "Divergence", "Layer.head"]
    return WrittenTable(f"{name}: clusters of heads", headings, rows, note)


def _by_relation(name: str, frame: pd.DataFrame) -> WrittenTable:
    frame = distinct(frame, "correct")
    words = frame.groupby("relation")["words"].first().sort_values(ascending=False, kind="stable")
    attentions = list(frame["attention"].unique())
    by = dict(tuple(frame.groupby(["relation", "attention"])))
    rows = []
    for relation in words.index[:SHOWN]:
        count = int(words[relation])
        own = [by[relation, attention] for attention in attentions]
        baseline = interval(own[0]["baseline"].iloc[0], count)
        rows.append([relation, str(count), baseline, *(_best(heads, count) for heads in own)])
    note = (
        "The share of words whose gold head is found, with its 95 % interval over words (Wilson). "
        "The best head, direction or position is picked in every other sentence and counted in "
        "the rest, and the reverse. Layer.head: that with the most words found. Where all heads "
        "are constant, they are the same in the replaced model."
    )
    headings = ["Relation", "Words", "position alone", *attentions]
    return WrittenTable(f"{name}: the best head for each relation", headings, rows, note)


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
