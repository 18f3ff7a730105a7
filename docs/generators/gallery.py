"""Draw docs/gallery and its page from the results of studies/embeddings.yaml: ``make picture``
runs the study, once more with the order by effect, then this.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas
import vl_convert

from papa.reporting.figures import FILE, Figure, datasets
from papa.reporting.heads import chosen_figure, head_panels
from papa.reporting.redundancy import effects_table, redundancy
from papa.reporting.redundancy_figures import joint_effect_panels
from papa.reporting.score_figures import drop_panels, score_panels
from papa.reporting.tables import score_tables
from papa.reporting.wording import markdown_text
from papa.scores.summary import read_table
from papa.storage.store import Store
from papa.tasks.findings import findings_of
from papa.tasks.manifest import open_study

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "gallery"
STUDY = DOCS.parent / "studies" / "embeddings.yaml"
SUMMARY = FOLDER / "summary.csv"
HEADS = FOLDER / "heads.parquet"
JOINT_EFFECTS = FOLDER / "joint_effects.csv"
DIGEST = FOLDER / "study.sha256"
"""Of the study file when its results were computed."""
EFFECT_LINES = 9
"""Of the table of joint effects: its header, the first heads of the order, and three pairs."""

_PAGE = """# Gallery

Recognise the figures and main tables of a report, here of `studies/embeddings.yaml`: the share of
the ten nearest neighbours of 300 review sentences that all-MiniLM-L6-v2 keeps as its heads become
constant.
`make picture` runs the study and draws this page.

## Scores against the share of heads

A line for each substitute and order; bars are 95 % intervals.

![Share of nearest neighbours kept, by substitute and order](gallery/scores.svg)

{scores}

## Drops

How much of the original score is lost.

![Share of nearest neighbours lost, by substitute and order](gallery/drops.svg)

{differences}

## Heads

The score of each head, here the distance of its attention from its average.

![A map of all heads by their distance](gallery/heads.svg)

## Redundancy of heads

What the first heads of the order by effect cost together, beside the sum of what each costs alone.
The loss is 1 less the cosine of a sentence's embedding to the original's.

![The effects of sets of heads, together and in sum](gallery/joint_effects.svg)

{redundancy}

{effects}

## Average attention

The average attention of three heads: on [CLS], on each token itself, and spread out.

![Average attention of three heads](gallery/matrices.png)

A report also has a table of [head orders compared](results.md#comparing-head-orders); one of the
paper's studies has the paper's numbers beside its own.
"""


def study_digest() -> str:
    """Return the SHA-256 of the study file."""
    return hashlib.sha256(STUDY.read_bytes()).hexdigest()


def result_figures(
    summary: pandas.DataFrame, heads: pandas.DataFrame, effects: pandas.DataFrame
) -> dict[str, str]:
    """Return the figures of stored results, as SVG by file name."""
    return {
        "scores.svg": drawn(score_panels(summary)),
        "drops.svg": drawn(drop_panels(summary)),
        "heads.svg": drawn(head_panels(heads)),
        "joint_effects.svg": drawn(joint_effect_panels(effects)),
    }


def stored_results() -> tuple[pandas.DataFrame, pandas.DataFrame, pandas.DataFrame]:
    """Return the summary, the head scores and the joint effects that the pictures are of."""
    return read_table(SUMMARY), pandas.read_parquet(HEADS), read_table(JOINT_EFFECTS)


def page(summary: pandas.DataFrame, effects: pandas.DataFrame) -> str:
    """Return the page, with the tables of scores and joint effects, and sentences on the latter."""
    scores, *differences = score_tables(summary)
    head_of_effects = effects_table(effects).markdown.splitlines()[:EFFECT_LINES]
    return _PAGE.format(
        scores=f"## {scores.heading}\n\n{scores.markdown.strip()}",
        differences="\n\n".join(
            f"### {table.heading}\n\n{table.markdown.strip()}" for table in differences
        ),
        redundancy="\n".join(f"- {markdown_text(sentence)}" for sentence in redundancy(effects)),
        effects="\n".join(head_of_effects),
    )


def drawn(figures: list[Figure]) -> str:
    """Return figures one below the other, as SVG."""
    specification: dict[str, Any] = {
        "$schema": figures[0].specification["$schema"],
        "datasets": datasets(figures),
        "vconcat": [_panel(figure) for figure in figures],
        "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")},
    }
    return vl_convert.vegalite_to_svg(json.dumps(specification), config=FILE)


def _panel(figure: Figure) -> Mapping[str, Any]:
    panel = {key: value for key, value in figure.specification.items() if key != "$schema"}
    if panel.get("width") == "container":
        del panel["autosize"]
        panel |= {"width": 480, "title": {"text": figure.title, "anchor": "middle"}}
    return panel


def main() -> None:
    """Copy the study's results, and write the pictures and the page."""
    store = Store("papa-store")
    study = open_study(store, "embeddings")
    by_effect = open_study(store, "embeddings-by-effect")
    FOLDER.mkdir(exist_ok=True)
    for folder, path in (
        (study.folder, SUMMARY),
        (study.folder, HEADS),
        (by_effect.folder, JOINT_EFFECTS),
    ):
        shutil.copyfile(folder / path.name, path)
    DIGEST.write_text(f"{study_digest()}\n")
    summary, heads, effects = stored_results()
    pictures = result_figures(summary, heads, effects)
    for name, picture in pictures.items():
        (FOLDER / name).write_text(picture)
    # As SVG its 12,288 cells take 2.6 MB.
    matrices = vl_convert.svg_to_png(drawn([chosen_figure(findings_of(study).averages[0])]))
    (FOLDER / "matrices.png").write_bytes(matrices)
    (DOCS / "gallery.md").write_text(page(summary, effects))


if __name__ == "__main__":
    main()
