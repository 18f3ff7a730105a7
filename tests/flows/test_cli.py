"""Commands that compute nothing: all that is wrong is told at once, before engines start."""

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from papa.errors import CheckError
from papa.flows.check import check_study
from papa.flows.cli import COMMANDS, load_command
from papa.models.reference import embedded_folder
from papa.spec.file import load_study, resolve_study
from papa.storage.artifacts import published
from papa.storage.store import Store
from tests.flows import conftest as cli
from tests.flows.conftest import words as errors

HEAVY = {"torch", "transformers", "datasets", "sklearn"}
AFTER_THE_PLAN = f"""
import sys
from tests.flows.conftest import invoke
print(invoke("plan", *sys.argv[2:]).out)
{cli.COMMAND}"""


@pytest.mark.server
def test_a_study_that_cannot_run_starts_neither_ray_nor_mlflow(tmp_path: Path) -> None:
    """Prefect's server starts while the study is checked."""
    study = cli.write_study(tmp_path, cli.SMALL | {"encoders": ["/no/encoder"]})
    store = tmp_path / "store"
    finished = cli.papa("run", study, "--store", str(store))
    assert "/no/encoder" in cli.refusal(finished)
    assert finished.imported <= HEAVY | {"prefect"}
    assert not (store / "artifacts").exists()


TEXTS = "describe --encoder embedded/all-MiniLM-L6-v2 --text taken"
EXPORT = "export small --to to --keep"
REFUSED = [
    ("heads smal", "'smal'"),
    ("heads small --max-drop 100%", "percentage"),
    ("report begun", "'begun'"),
    ("compare older", "manifest.json"),
    ("compare small --to taken", "taken"),
    (f"{EXPORT} 0.25", "--keep 0.25"),
    (f"{EXPORT} 1", "--keep below 1"),
    (f"{EXPORT} 0.5 --order lamda", "--order lamda"),
    (f"{EXPORT} 0.5 --encoder other", "--encoder other"),
    (f"{EXPORT} 0.5 --max-drop 1%", "--max-drop"),
    ("describe --encoder embedded/all-MiniLM-L6-v2 --trees taken", "trees"),
    (f"{TEXTS}.absent", "taken.absent"),
    (f"{TEXTS} --only syntax", "'syntax'"),
    ("run --encoder google-bert/bert-base-uncased --task revews", "'reviews'"),
    ("run --model embedded/all-MiniLM-L6-v2 --data absent.txt", "absent.txt"),
    ("run --model embedded/all-MiniLM-L6-v2 --data texts --set orders=[mine:last]", "mine:last"),
    ("init taken", "taken"),
    ("deploy plain.yaml", "PREFECT_API_URL"),
    ("deploy own.yaml", "mine:last"),
    ("remove smal --yes", "'smal'"),
    ("list --store none", "papa-store.json"),
]


@pytest.fixture(scope="module")
def folder(tiny: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of one finished study and one that was begun, and study files."""
    folder = tmp_path_factory.mktemp("refused")
    store = folder / "store"
    shutil.copytree(tiny[1], store)
    (store / "studies" / "begun.yaml").write_text("name: begun\n")
    with published(folder / "older", {}) as older:
        shutil.copy(store / "studies" / "small" / "results.parquet", older)
    (folder / "taken").write_text("a text\n")
    (folder / "texts").write_text("".join(f"Text {number}.\n" for number in range(44)))
    cli.write_study(folder, cli.SMALL, "plain.yaml")
    cli.write_study(folder, cli.SMALL | {"orders": ["mine:last"]}, "own.yaml")
    return folder


@pytest.mark.server
@pytest.mark.parametrize(("command", "expected"), REFUSED, ids=[command for command, _ in REFUSED])
def test_a_refused_command_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, expected: str
) -> None:
    monkeypatch.chdir(folder)
    before = {*folder.rglob("*")}
    has_store = not command.startswith(("init", "describe")) and "--store" not in command
    store = ["--store", "store"] if has_store else []
    line = cli.refusal(cli.invoke(*command.split(), *store)).replace(f"{folder}/", "")
    assert expected in line
    assert {*folder.rglob("*")} == before


@pytest.mark.server
def test_help_imports_no_command() -> None:
    code = """
import sys
from papa.flows.cli import app
app(standalone_mode=False)
print(*sys.modules)"""
    imported = subprocess.check_output([sys.executable, "-c", code, "--help"], text=True).split()
    assert "typer" in imported, "negative control"
    assert not {"numpy", "pandas", "pydantic", "torch", "papa.flows.cli.options"} & {*imported}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_the_first_paragraph_of_a_commands_help(name: str) -> None:
    command = load_command(name)
    first_paragraph, *_ = str(command.help).split("\n\n")
    assert (command.name, " ".join(first_paragraph.split())) == (name, COMMANDS[name])


def test_models_and_tasks_are_listed() -> None:
    models = cli.invoke("models")
    tasks = cli.invoke("tasks")
    assert models.code == tasks.code == 0
    for kind in ("bert", "roberta", "electra", "gpt2", "embedded/all-MiniLM-L6-v2"):
        assert kind in models.out
    rows = [line.split("\t") for line in tasks.out.splitlines()]
    assert rows[0] == ["Task", "Kind", "Metric", "Slots", "Rate", "Batch", "Epochs", "Source"]
    assert ["cola", "text", "matthews", "64", "2e-05", "16", "15", "nyu-mll/glue/cola"] in rows
    assert {"mnli", "reviews"} <= {row[0] for row in rows}


def test_the_example_of_init_is_a_study(tmp_path: Path) -> None:
    mine = str(tmp_path / "mine.yaml")
    store = ("--store", str(tmp_path / "store"))
    assert cli.invoke("init", mine).code == 0
    assert cli.invoke("plan", mine, *store).code == 0
    # What it says is what holds without it, but for a task of one's own, which is a comment.
    first = {"name": "my-study", "encoders": ["embedded/all-MiniLM-L6-v2"], "tasks": ["reviews"]}
    assert load_study(Path(mine)) == resolve_study(first, folder=tmp_path, origin="test")
    text = Path(mine).read_text()
    uncommented = re.sub(r"^  # ", "  ", text, flags=re.M)
    task = load_study(Path(cli.write_study(tmp_path, yaml.safe_load(uncommented)))).tasks[1]
    assert (task.name, task.columns.label, task.slots) == ("tickets", "queue", 128)
    assert uncommented != text
    assert not (tmp_path / "store").exists()


@pytest.mark.server
def test_to_look_at_a_study_computes_nothing(tmp_path: Path) -> None:
    study = cli.write_study(tmp_path, cli.SMALL)
    store = tmp_path / "store"
    finished = cli.papa("check", study, "--store", str(store), program=AFTER_THE_PLAN)
    assert finished.code == 0, finished.err
    assert not finished.imported & {"ray", "mlflow", "prefect"}
    assert re.search(r"\b0 of (\d+) steps are cached; \1 would run", finished.out)
    assert finished.out.splitlines()[-1] == "ready"
    for shown in ("6 × 12", "512", "64", "48", "negative, positive"):
        assert shown in finished.out
    assert not store.exists()


GONE = cli.task_on("gone", {"kind": "files", "train": "no.jsonl", "validation": "no.jsonl"})
GOOD = [{"text": f"text number {row}", "label": row % 2} for row in range(20)]
WORDS = {"kind": "words", "columns": {"words": "words", "label": "tags"}, "metric": "entity_f1"}
TAGGED = [{"words": ["Rome", "is"], "tags": ["B-LOC", "O"]}] * 8
FAULTS = {
    "encoders.1 (": 1,
    "99999": 1,
    "tasks.1 (gone): ": 1,
    "tasks.2 (columns): ": 2,
    "tasks.3 (three): ": 1,
    "tasks.4 (unseen): ": 1,
    "tasks.5 (tags): ": 2,
    "'embedded/all-MiniLM-L6-v2' takes 512": 1,
    "/other' takes 512": 1,
}
"""What is named, and in how many sentences: both splits of a task may have a fault."""


@pytest.mark.parametrize("command", ["check", "plan"])
def test_every_fault_is_a_sentence(command: str, tmp_path: Path) -> None:
    def task(name: str, *splits: list[Any], **settings: Any) -> dict[str, Any]:
        return cli.task_on(name, cli.rows_in(tmp_path, name, *splits), **settings)

    tasks = [
        *(cli.SMALL["tasks"][0], GONE),
        task("columns", GOOD, columns={"text": "txet", "label": "label"}),
        task("three", [{**row, "label": label % 3} for label, row in enumerate(GOOD)], metric="f1"),
        task("unseen", GOOD, [*GOOD, {"text": "x", "label": 7}]),
        task("tags", [*TAGGED, {"words": ["x"], "tags": ["NN"]}], **WORDS),
        task("long", GOOD, slots=1024),
    ]
    words = Path(shutil.copytree(embedded_folder(), tmp_path / "other")) / "tokenizer.json"
    document = json.loads(words.read_text())
    document["model"]["vocab"]["the"] = 99_999
    words.write_text(json.dumps(document))
    encoders = [*cli.SMALL["encoders"], "./nowhere", "./other"]
    study = cli.write_study(tmp_path, cli.SMALL | {"tasks": tasks, "encoders": encoders})
    finished = cli.invoke(command, study, "--store", str(tmp_path / "store"))
    assert finished.code == 1
    first, *problems = errors(finished)
    assert f" {len(problems)} problems" in first
    assert len(problems) == sum(FAULTS.values())
    for fault, count in FAULTS.items():
        assert sum(fault in sentence for sentence in problems) == count, fault
    assert not (tmp_path / "store" / "artifacts").exists()


@pytest.mark.parametrize("source", ["RAY_ADDRESS", "--ray-address"])
def test_no_cluster_answers(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = load_study(Path(cli.write_study(tmp_path, cli.TINY)))
    store = Store(tmp_path / "store")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        ray_address = address if source == "--ray-address" else None
        if ray_address is None:
            monkeypatch.setenv(source, address)
        with pytest.raises(CheckError, match=address) as raised:
            check_study(study, store, ray_address=ray_address, purpose="check")
    assert source in str(raised.value)


@pytest.mark.parametrize("row", ["", "a,b,average,lambda,half,1,c\n"])
def test_a_table_of_the_papers_numbers_is_checked(tmp_path: Path, row: str) -> None:
    table = tmp_path / "paper.csv"
    table.write_text(f"encoder,task,constants,order,fraction,score,source\n{row}")
    study = cli.write_study(tmp_path, cli.IDENTITY | {"reference": "paper.csv"})
    finished = cli.invoke("check", study, "--store", str(tmp_path / "store"))
    assert finished.code == bool(row)
    assert (str(table) in finished.err) == bool(row)


@pytest.mark.parametrize(("keep", "is_warned"), [([0.5, 0], True), ([1, 0], False)])
def test_a_missing_original_warns(tmp_path: Path, keep: list[float], is_warned: bool) -> None:
    study = cli.write_study(tmp_path, cli.SMALL | {"keep": keep})
    finished = cli.invoke("check", study, "--store", str(tmp_path / "store"))
    assert finished.code == 0
    assert ("keep holds no 1" in finished.out) == is_warned
