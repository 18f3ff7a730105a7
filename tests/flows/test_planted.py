"""A store to which somebody else may write: nothing there that Prefect would run or believe reaches
a reader.
"""

from __future__ import annotations

import base64
import itertools
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.conftest import environment, papa
from tests.flows.test_damage import scores

pytestmark = pytest.mark.server

RUNS_IT = """
import sys
from pathlib import Path
from prefect.results import ResultRecord
for path in Path(sys.argv[1]).iterdir():
    ResultRecord.deserialize(path.read_bytes())
"""


class Fires:
    """Its pickle creates a file where it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


def plant(store: Path, serializer: str, results: list[str]) -> None:
    """Prefect's record of every finished step, where it would keep it, with one of ``results``, in
    turn.
    """
    folder = store / "prefect" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    places = sorted((store / "artifacts").glob("*/[!.]*"))
    for place, result in zip(places, itertools.cycle(results), strict=False):
        path = folder / f"{place.parent.name}-{place.name}"
        metadata = {
            "storage_key": str(path),
            "serializer": {"type": serializer},
            "prefect_version": "3.8.8",
        }
        path.write_text(json.dumps({"metadata": metadata, "result": result}))


def finish_again(study: str, store: Path, prefect: dict[str, str]) -> None:
    """Run a study from whose store the results are gone."""
    for folder in ("artifacts/aggregate", "artifacts/track", "studies"):
        shutil.rmtree(store / folder)
    run = papa("run", study, "--store", str(store), more=prefect)
    assert run.code == 0, run.err


def test_no_pickle_in_a_store_is_read(
    tiny: tuple[str, Path], prefect: dict[str, str], tmp_path: Path
) -> None:
    """The control has Prefect read the same records, which do create the file."""
    (study, store), fired = tiny, tmp_path / "fired"
    before = scores(store)
    plant(store, "pickle", [base64.encodebytes(pickle.dumps(Fires(fired))).decode()])
    finish_again(study, store, prefect)
    assert not fired.exists()
    assert scores(store).equals(before)
    subprocess.run(
        [sys.executable, "-c", RUNS_IT, store / "prefect" / "results"],
        env=environment(),
        check=True,
    )
    assert fired.exists()


def test_no_record_says_what_a_step_found(tiny: tuple[str, Path], prefect: dict[str, str]) -> None:
    """Each names the artifact of another probe, or none at all."""
    study, store = tiny
    before = scores(store)
    probes = sorted((store / "artifacts" / "probe").iterdir())
    assert len(probes) > 1
    digests = [json.loads((one / "metadata.json").read_text())["digest"] for one in probes]
    named = [
        json.dumps({"stage": "probe", "key": one.name, "digest": digest})
        for one, digest in zip(reversed(probes), reversed(digests), strict=True)
    ]
    plant(store, "json", [*named, "null"])
    finish_again(study, store, prefect)
    assert scores(store).equals(before)


def test_no_setting_of_prefect_comes_from_a_store(tiny: tuple[str, Path], tmp_path: Path) -> None:
    """Neither a logging configuration, which calls whatever it names, nor a profile that points to
    one; neither to the study nor to its own server.
    """
    (study, store), fired, elsewhere = tiny, tmp_path / "fired", tmp_path / "elsewhere.yml"
    logging = {
        "version": 1,
        "handlers": {"it": {"()": "subprocess.Popen", "args": ["touch", str(fired)]}},
    }
    profile = (
        f'active = "planted"\n[profiles.planted]\nPREFECT_LOGGING_CONFIG_PATH = "{elsewhere}"\n'
    )
    planted = {
        store / "prefect" / "logging.yml": json.dumps(logging),
        store / "prefect" / "profiles.toml": profile,
    }
    elsewhere.write_text(json.dumps(logging))
    for path, content in planted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    run = papa("run", study, "--store", str(store))
    assert run.code == 0, run.err
    assert not fired.exists()
    for path in planted:
        alone = tmp_path / path.name / path.name
        alone.parent.mkdir()
        path.rename(alone)
        home = environment() | {"PREFECT_HOME": str(alone.parent)}
        subprocess.run([sys.executable, "-c", "import prefect.main"], env=home, capture_output=True)
        assert fired.exists(), "the control: Prefect alone does what it says"
        fired.unlink()
