"""A ``--store`` that is none, what may be deleted of one, and what others planted there."""

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pandas
import pytest
from filelock import FileLock

from papa.files import sha256_of_file
from papa.flows.cli.lists import stored_studies
from papa.flows.cli.without_file import study_of_texts, study_without_file
from papa.models.reference import EMBEDDED
from papa.scores.summary import read_table
from papa.storage.artifacts import METADATA, published, read_metadata, signed
from papa.storage.locks import in_use
from papa.storage.store import Store
from papa.tasks.mlflow_address import artifact_folder, tracking_folder
from papa.tasks.study_files import save_study
from tests.finished import finish_study
from tests.flows.conftest import SMALL, everything, invoke, papa, refusal, write_study

KEY = "0123456789abcdef" * 4
ESCAPE = "\x1b]0;owned\x07\x9b2J"
SECRET = "what lies outside"


@pytest.mark.server
@pytest.mark.parametrize("command", ["run", "prune"])
def test_a_store_that_cannot_be_reached_is_one_sentence(tmp_path: Path, command: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    environment = {**keys, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "PAPA_CACHE": str(tmp_path)}
    study = [] if command == "prune" else [write_study(tmp_path, SMALL)]
    finished = papa(command, *study, "--store", "s3://papa/x", extra_environment=environment)
    assert "at http://127.0.0.1:1 cannot be used" in refusal(finished)
    assert not finished.imported & {"ray", "mlflow", "prefect", "torch"}


@pytest.fixture
def unused(tmp_path: Path) -> Store:
    """A store with one artifact, to which nothing refers, and a file of someone else."""
    store = Store(tmp_path / "store")
    store.make()
    metadata = {"stage": "probe", "key": KEY, "name": f"probe · {ESCAPE}"}
    with published(store.folder("probe", KEY), metadata) as scratch:
        (scratch / "scores.json").write_text("{}")
    store.files.write("scratch/thesis.txt", b"mine")
    return store


def test_prune_deletes_nothing_unless_asked(unused: Store) -> None:
    before = everything(unused.root)
    shown = invoke("prune", "--store", unused.address).out
    assert f"artifacts/probe/{KEY}" in "".join(shown.split()).replace("│", "")
    assert everything(unused.root) == before


def test_prune_deletes_nothing_while_a_study_runs(unused: Store) -> None:
    before = everything(unused.root)
    with in_use(unused):
        refused = invoke("prune", "--store", unused.address, "--delete")
    assert "nothing was deleted" in refusal(refused)
    assert everything(unused.root) == before


def test_prune_deletes_what_nothing_refers_to(unused: Store) -> None:
    invoke("prune", "--store", unused.address, "--delete")
    left = {path.removeprefix(f"{unused.root}/") for path in everything(unused.root)}
    assert "scratch/thesis.txt" in left
    assert not any(name.startswith("artifacts/probe/") for name in left)


def test_a_folder_that_is_no_store_is_not_touched(tmp_path: Path) -> None:
    photo = tmp_path / "artifacts" / "photos" / "a.jpg"
    photo.parent.mkdir(parents=True)
    photo.write_text("mine")
    before = everything(tmp_path)
    line = refusal(invoke("prune", "--store", str(tmp_path), "--delete"))
    assert str(tmp_path) in line
    assert everything(tmp_path) == before


@pytest.fixture
def store(tiny: tuple[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny[1], tmp_path / "store"))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "small").mkdir(parents=True)
    for name in ("secret.txt", "small/thesis.txt"):
        (folder / name).write_text(SECRET)
    return folder


OTHER = ("name=other", "probe_seeds=[1]")


@pytest.fixture(scope="module")
def two_studies(tiny: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the studies small and other are finished; tests only read it."""
    store = tmp_path_factory.mktemp("two") / "store"
    shutil.copytree(tiny[1], store)
    finish_study(tiny[0], store, *OTHER)
    return store


@pytest.fixture
def swapped(two_studies: Path, tmp_path: Path) -> Path:
    """A store whose two studies have each other's results: their digests fit."""
    store = Path(shutil.copytree(two_studies, tmp_path / "store"))
    studies = store / "studies"
    for source, name in (("small", "aside"), ("other", "small"), ("aside", "other")):
        (studies / source).rename(studies / name)
    return store


@pytest.mark.server
def test_swapped_results_are_refused_by_compare(swapped: Path) -> None:
    line = refusal(invoke("compare", "small", "other", "--store", str(swapped)))
    assert f"{swapped}/studies/small" in line
    assert "'other'" in line


@pytest.mark.server
def test_swapped_results_are_listed_as_damaged(swapped: Path) -> None:
    listed = {study.name: study.state for study in stored_studies(Store(swapped))}
    assert listed == dict.fromkeys(("small", "other"), "damaged results")


@pytest.mark.server
def test_swapped_results_are_restored_without_computing(
    tiny: tuple[str, Path], two_studies: Path, swapped: Path
) -> None:
    table = invoke("compare", "small", "other", "--store", str(two_studies)).out
    for changes in ((), OTHER):
        assert not finish_study(tiny[0], swapped, *changes).ran
    assert invoke("compare", "small", "other", "--store", str(swapped)).out == table


@pytest.mark.server
def test_a_study_is_removed_with_what_it_alone_needs(tiny: tuple[str, Path], store: Path) -> None:
    store_option = ("--store", str(store))
    before = everything(store / "artifacts")
    finish_study(tiny[0], store, "name=other", "probe_seeds=[1]")
    with in_use(Store(store)):
        refusal(invoke("remove", "other", "--yes", *store_option))
    assert invoke("remove", "other", "--yes", *store_option).code == 0
    assert everything(store / "artifacts") == before, "what the first study needs is there"
    assert [study.name for study in stored_studies(Store(store))] == ["small"]
    assert not finish_study(tiny[0], store).ran, "and it is still finished"


def test_a_removed_study_takes_the_texts_that_were_copied_for_it(tmp_path: Path) -> None:
    """But for those that another study reads as well, and what others keep there."""
    store = Store(tmp_path / "store")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"Text number {number}." for number in range(44)))
    study = study_of_texts((EMBEDDED,), texts, False, None, [], store, ExitStack())
    for name in (study.name, "renamed"):
        save_study(store, study.model_copy(update={"name": name}))
    other_study = save_study(store, study_without_file(None, [EMBEDDED], ["reviews"], 20, []))
    first = "all-MiniLM-L6-v2-texts-native"
    copies = {f"{first}.train.jsonl", f"{first}.validation.jsonl"}

    def left() -> set[str]:
        return {path.name for path in store.study_path("").iterdir()}

    assert left() == {f"{first}.yaml", "renamed.yaml", other_study.name, *copies}
    assert invoke("remove", first, "--yes", "--store", store.address).code == 0
    assert left() == {"renamed.yaml", other_study.name, *copies}
    assert invoke("remove", "renamed", "--yes", "--store", store.address).code == 0
    assert left() == {other_study.name}


def test_what_a_store_holds_is_printed_without_a_terminals_escapes(unused: Store) -> None:
    store = unused
    name = f"a{ESCAPE}"
    store.study_path("").mkdir()
    store.study_path(f"{name}.yaml").write_text("[")
    store.study_path(f"{name}.failed").write_text(f"no {ESCAPE} memory")
    store.locks.mkdir()
    with FileLock(store.locks / f"run-{ESCAPE}-1-0.lock"):
        shown = [invoke(command, "--store", store.address).out for command in ("list", "prune")]
    shown.append(invoke("remove", name, "--store", store.address).out)
    for text in shown:
        assert "\\x1b]0;owned" in "".join(text.split()).replace("│", "")
        assert not {"\x1b", "\x07", "\x9b"} & set(text)


@pytest.mark.server
def test_names_in_results_are_printed_without_a_terminals_escapes(store: Path) -> None:
    """Whoever may write to a store signs what is written there."""
    opened_store = Store(store)
    artifact = opened_store.study_path("small")
    label = f"b{ESCAPE}"

    def with_label(text: str) -> str:
        return text.replace("all-MiniLM-L6-v2", json.dumps(label, ensure_ascii=True)[1:-1])

    for name in ("manifest.json", "study.yaml"):
        (artifact / name).write_text(with_label((artifact / name).read_text()))
    summary = read_table(artifact / "summary.csv").assign(encoder=label)
    summary.to_csv(artifact / "summary.csv", index=False)
    for name in ("results.parquet", "heads.parquet"):
        table = pandas.read_parquet(artifact / name).assign(encoder=label)
        table.to_parquet(artifact / name, index=False)
    metadata = read_metadata(artifact)
    files = {name: sha256_of_file(artifact / name) for name in metadata["files"]}
    (artifact / METADATA).write_text(json.dumps(signed({**metadata, "files": files})))
    for command in (("heads", "small"), ("heads", "small", "--json"), ("compare", "small")):
        finished = invoke(*command, "--store", opened_store.address)
        assert finished.code == 0, finished.err
        assert "x1b" in finished.out or "u001b" in finished.out
        assert not {"\x1b", "\x07", "\x9b"} & set(finished.out)


@pytest.mark.server
def test_links_of_a_store_lead_nowhere(
    tiny: tuple[str, Path], store: Path, outside: Path, prefect: dict[str, str]
) -> None:
    """A run that places and logs its results anew writes and copies nothing from outside."""
    before = everything(outside)
    placed = store / "studies" / "small"
    (results,) = (store / "artifacts" / "aggregate").glob("[!.]*")
    (results / ".bashrc").write_text("planted")
    (results / "key.txt").symlink_to(outside / "secret.txt")
    shutil.rmtree(placed)
    placed.symlink_to(outside / "small")
    refused = papa("run", tiny[0], "--store", str(store), extra_environment=prefect)
    assert f"{placed} is a link" in refusal(refused)
    placed.unlink()
    run = papa("run", tiny[0], "--store", str(store), extra_environment=prefect)
    assert run.code == 0, run.err
    assert everything(outside) == before
    placed_files = {path.name: path for path in placed.rglob("*")}
    assert "report.html" in placed_files
    assert not placed_files.keys() & {".bashrc", "key.txt"}
    mlflow = artifact_folder(tracking_folder() / "mlflow.db")
    copied = [path for path in mlflow.rglob("*") if path.is_file()]
    assert copied
    assert not [path for path in copied if SECRET.encode() in path.read_bytes()]


@pytest.mark.server
@pytest.mark.parametrize("name", ["studies", "artifacts", "scratch", "locks"])
def test_a_link_is_refused(tiny: tuple[str, Path], store: Path, outside: Path, name: str) -> None:
    path = store / name
    before = everything(outside)
    if path.is_dir():
        shutil.rmtree(path)
    path.symlink_to(outside)
    arguments = {"run": [tiny[0]], "report": [tiny[0]], "list": [], "prune": ["--delete"]}
    for command in arguments:
        line = refusal(invoke(command, *arguments[command], "--store", str(store)))
        assert f"{path} is a link" in line
    assert everything(outside) == before
