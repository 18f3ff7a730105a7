"""Where a browser shows a study in MLflow: its curves, its runs, its report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

RESULTS = "results"
"""Where a parent run keeps its study's results."""
_PAGE = "workflowType=machine_learning"
"""Without it MLflow takes experiments for language model applications and shows other pages."""


def live_link(address: str, experiment: str) -> str:
    """Where a browser shows a study's runs; "" for what is no server: a SQLite file, which has no
    pages until ``mlflow ui`` serves it, or anything else that a store's file may say.
    """
    is_server = urlsplit(address).scheme in ("http", "https", "")
    return f"{_runs(address, experiment)}?{_PAGE}" if is_server else ""


def run_links(document: Mapping[str, Any]) -> dict[str, str]:
    """Where a browser shows a study's runs: the chart of its curves under its name, or all runs
    where the document names no curves; then the page of each parent run under the run's name. Empty
    for a SQLite file.
    """
    address, number = document["address"], document["experiment_id"]
    every = live_link(address, number)
    if not every:
        return {}
    runs, parents = _runs(address, number), document["parents"].items()
    curves = json.dumps(document.get("curves", []), separators=(",", ":"))
    # MLflow's page of a metric takes its parameters in this order alone. The step is the fraction.
    lines = {
        "metric": '"score"',
        "experiments": f'["{number}"]',
        "plot_metric_keys": '["score"]',
        "x_axis": "step",
    }
    query = urlencode({"runs": curves, **lines, "show_point": "true"}, quote_via=quote)
    chart = f"{_server(address)}/#/metric?{query}&{_PAGE}"
    return {document["experiment"]: every if curves == "[]" else chart} | {
        name: f"{runs}/{quote(run, safe='')}?{_PAGE}" for name, run in parents
    }


def page_link(document: Mapping[str, Any]) -> str:
    """Where a browser shows a study's ``report.html``: among the files of its first parent run; ""
    for a SQLite file.
    """
    _, first, *_ = (*run_links(document).values(), "", "")
    return first and first.replace("?", f"/artifactPath/{RESULTS}/report.html?")


def _runs(address: str, experiment: str) -> str:
    return f"{_server(address)}/#/experiments/{quote(experiment, safe='')}/runs"


def _server(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")


def first_to_open(document: Mapping[str, Any]) -> str:
    """Links to the curves and to the report, as Markdown on a page of MLflow itself."""
    here = {**document, "address": ""}
    curves, report = run_links(here)[document["experiment"]], page_link(here)
    links = {"Scores over the fraction": curves, "Report": report}
    return " · ".join(f"**[{text}]({link.lstrip('/')})**" for text, link in links.items())
