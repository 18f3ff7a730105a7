"""Draw docs/gallery and its page: ``make picture`` runs studies/embeddings.yaml and variations of
it, then this. What the page shows of their results is stored beside the pictures, as in a store.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas
import vl_convert
from rich.console import Console
from typer.testing import CliRunner

from papa.flows.cli import app
from papa.reporting.described import described_tables
from papa.reporting.figures import FILE, Figure, rows_by_source
from papa.reporting.heads import chosen_figure, head_panels
from papa.reporting.order_table import order_table
from papa.reporting.redundancy import effects_table, redundancy_sentences
from papa.reporting.redundancy_figures import joint_effect_panels
from papa.reporting.score_figures import drop_panels, score_panels, scores_figure
from papa.reporting.tables import score_tables
from papa.reporting.wording import markdown_text
from papa.scores.summary import compare_studies, read_table
from papa.storage.artifacts import METADATA, read_metadata
from papa.storage.store import Store
from papa.tasks.findings import findings_of
from papa.tasks.manifest import FinishedStudy, open_study, tables_of
from papa.text.sources import read_reviews

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "gallery"
STUDY = DOCS.parent / "studies" / "embeddings.yaml"
STUDIES = ("embeddings", "embeddings-orders", "average-of-600", "average-of-60")
JOINT_EFFECTS = FOLDER / "joint_effects.csv"
DESCRIBED = FOLDER / "described.parquet"
EFFECT_LINES = 9
"""Of the table of joint effects: its header, the first heads of the order, and three pairs."""
DESCRIBED_LINES = 20
"""Of what ``papa describe`` prints: the table of texts, and one measure of the first layers."""
_COLUMNS = 80
_COMPARED = ("average-of-600", "average-of-60")
_HEADS = ("heads", "average-of-600", "--max-drop", "30%")
_DESCRIBE = (
    *("describe", "--encoder", "embedded/all-MiniLM-L6-v2", "--text", "reviews.txt"),
    *("--limit", "50", "--only", "separators"),
)
_CHROMIUM_OPTIONS = (
    *("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", "no-first-run"),
    *("disable-background-networking", "disable-sync", "window-size=1280,1600"),
    # Its figures are drawn by a script.
    "virtual-time-budget=60000",
)

_PAGE = """# Gallery

See what PAPA draws and prints before you run a study.
The results are of `studies/embeddings.yaml` and variations of it: how many of the ten nearest
neighbours of 300 review sentences all-MiniLM-L6-v2 keeps as its heads become constant.
In a checkout, `papa heads` and `papa compare` read them with `--store docs/gallery`.

## Report

![The first page of a report](gallery/report.png)

## Scores against the share of heads

Each line is a substitute with an order; bars are 95 % intervals.

![Share of nearest neighbours kept, by substitute and order](gallery/scores.svg)

{scores}

## Relative drop

![Share of nearest neighbours lost, by substitute and order](gallery/drops.svg)

## Head orders compared

Each order is compared with the study's first ([test](results.md#comparing-head-orders)).

{orders}

## Heads

A head's score is here the distance of its attention from its average.

![A map of all heads by their distance](gallery/heads.svg)

## Redundancy of heads

[Redundant heads](how-to/rank-heads.md#find-redundant-heads) cost more together than in the sum of
each alone; the loss is 1 minus the cosine of a sentence's embedding to the original one.

![The effects of sets of heads, together and in sum](gallery/joint_effects.svg)

{redundancy}

{effects}

## Average attention

One head attends to [CLS], one to each token itself, and one to all tokens.

![Average attention of three heads](gallery/matrices.png)

## Heads that may become constant

{heads}

## Studies compared

Averages over 600 texts are compared with averages over 60 of them; tables of drops and differences
are left out here.

{compared}

![Share of nearest neighbours kept, by study](gallery/compared.svg)

## Heads described

The table has means by layer, for the three kinds of
[attention](how-to/describe.md#columns).

{described}
"""


def stored(study: str) -> FinishedStudy:
    """Return a study of which results are stored beside the pictures."""
    return open_study(Store(FOLDER), study)


def comparison() -> pandas.DataFrame:
    """Return the table of ``papa compare``."""
    return compare_studies({study: stored(study).results for study in _COMPARED})


def result_figures() -> dict[str, str]:
    """Return the figures of stored results, as SVG by file name."""
    embeddings = stored("embeddings")
    return {
        "scores.svg": drawn(score_panels(embeddings.summary)),
        "drops.svg": drawn(drop_panels(embeddings.summary)),
        "heads.svg": drawn(head_panels(embeddings.heads)),
        "joint_effects.svg": drawn(joint_effect_panels(read_table(JOINT_EFFECTS))),
        "compared.svg": scores_figure(comparison()).svg(),
    }


def page() -> str:
    """Return the page, with tables and sentences of stored results, and what commands print."""
    scores, *_drops_and_contrasts = score_tables(stored("embeddings").summary)
    by_order = stored("embeddings-orders")
    assert by_order.orders is not None
    effects = read_table(JOINT_EFFECTS)
    head_of_effects = effects_table(effects).markdown.splitlines()[:EFFECT_LINES]
    compared_scores, *_differences = _printed("compare", *_COMPARED).split("\n\nRelative drop ")
    return _PAGE.format(
        scores=scores.markdown.strip(),
        orders=order_table(by_order.orders, by_order.summary).titled_markdown.strip(),
        redundancy="\n".join(
            f"- {markdown_text(sentence)}" for sentence in redundancy_sentences(effects)
        ),
        effects="\n".join(head_of_effects),
        heads=_shown(_HEADS, _printed(*_HEADS)),
        compared=f"{_block('shell', 'papa compare ' + ' '.join(_COMPARED))}\n\n{compared_scores}",
        described=_shown(_DESCRIBE, _described(pandas.read_parquet(DESCRIBED))),
    )


def _printed(*command: str) -> str:
    """Return what a command prints of stored results where its output is no terminal."""
    arguments = [*command, "--store", str(FOLDER)]
    return CliRunner().invoke(app, arguments, catch_exceptions=False).stdout.strip()


def _described(frame: pandas.DataFrame) -> str:
    """Return the first lines of what ``papa describe`` prints of its numbers."""
    output = StringIO()
    console = Console(file=output, width=_COLUMNS)
    for table in described_tables(frame):
        console.print(table.terminal())
    lines = map(str.rstrip, output.getvalue().splitlines()[:DESCRIBED_LINES])
    return "\n".join([*lines, "…"])


def _shown(command: tuple[str, ...], output: str) -> str:
    """Return a command and what it prints as blocks of Markdown."""
    return f"{_block('shell', ' '.join(['papa', *command]))}\n\n{_block('text', output)}"


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def drawn(figures: list[Figure]) -> str:
    """Return figures one below the other, as SVG."""
    specification: dict[str, Any] = {
        "$schema": figures[0].specification["$schema"],
        "datasets": rows_by_source(figures),
        "vconcat": [_panel(figure) for figure in figures],
    }
    return vl_convert.vegalite_to_svg(json.dumps(specification), config=FILE)


def _panel(figure: Figure) -> Mapping[str, Any]:
    panel = {key: value for key, value in figure.specification.items() if key != "$schema"}
    if panel.get("width") == "container":
        del panel["autosize"]
        panel |= {"width": 480, "title": {"text": figure.title, "anchor": "middle"}}
    return panel


def main() -> None:
    """Copy the studies' results, and write the pictures and the page."""
    store = Store("papa-store")
    shutil.rmtree(FOLDER / "studies", ignore_errors=True)
    for name in STUDIES:
        finished = open_study(store, name).folder
        copied = FOLDER / "studies" / name
        copied.mkdir(parents=True)
        for file in (METADATA, *tables_of(read_metadata(finished))):
            shutil.copyfile(finished / file, copied / file)
    by_effect = open_study(store, "embeddings-by-effect")
    shutil.copyfile(by_effect.folder / JOINT_EFFECTS.name, JOINT_EFFECTS)
    for name, picture in result_figures().items():
        (FOLDER / name).write_text(picture)
    embeddings = open_study(store, "embeddings")
    # As SVG its 12,288 cells take 2.6 MB.
    matrices = vl_convert.svg_to_png(drawn([chosen_figure(findings_of(embeddings).averages[0])]))
    (FOLDER / "matrices.png").write_bytes(matrices)
    _photograph(embeddings.folder / "report.html", FOLDER / "report.png")
    _describe_reviews()
    (DOCS / "gallery.md").write_text(page())


def _photograph(report: Path, picture: Path) -> None:
    """Save how a browser shows the first page of a report; leave the picture without Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print(f"{picture} stays as it is: Chromium is not installed (apt-get install chromium)")
        return
    with TemporaryDirectory() as profile:
        options = [*_CHROMIUM_OPTIONS, f"user-data-dir={profile}", f"screenshot={picture}"]
        command = [chromium, *(f"--{option}" for option in options), report.absolute().as_uri()]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def _describe_reviews() -> None:
    """Write the numbers of ``papa describe`` on validation texts of the study."""
    texts = read_reviews("validation").rows["text"].to_pylist()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "reviews.txt"
        path.write_text("\n".join(texts))
        command = [str(path) if part == path.name else part for part in _DESCRIBE]
        arguments = [*command, "--out", str(DESCRIBED)]
        CliRunner().invoke(app, arguments, catch_exceptions=False)


if __name__ == "__main__":
    main()
