"""A finished study where Prefect shows its runs: the report with its figures and links to the tracked runs."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path

import httpx
from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact

_FIGURE = re.compile(r"\((?P<name>\w+)\.svg\)")


def show_report(study: str, folder: Path, links: Mapping[str, str]) -> None:
    """Keep a study's report as a Prefect artifact of the flow run, its figures inside it.

    Where Prefect's server does not answer just then, the study is finished all the same.

    Args:
        study: the study's name.
        folder: its results.
        links: addresses of its tracked runs, by name.
    """
    report = _FIGURE.sub(lambda figure: f"({_inline(folder / figure['name'])})", (folder / "report.md").read_text())
    if links:
        runs = " · ".join(f"[{name}]({address})" for name, address in links.items())
        title, _, rest = report.partition("\n")
        report = f"{title}\n\nRuns in MLflow: {runs}\n{rest}"
    try:
        create_markdown_artifact(report, key=_key(study, "report"), description=f"Study {study}, kept in {folder}")
    except (httpx.HTTPError, RuntimeError) as error:
        get_run_logger().warning("Prefect's server took no report: %s", error)


def _inline(figure: Path) -> str:
    """A figure as a data URI; Prefect's UI shows no other address that every reader reaches."""
    return f"data:image/png;base64,{base64.b64encode(figure.with_suffix('.png').read_bytes()).decode()}"


def _key(study: str, what: str) -> str:
    """An artifact's key: Prefect takes lower-case letters, digits and dashes."""
    return re.sub("[^a-z0-9]+", "-", f"papa {study} {what}".lower())
