"""A store to which somebody else may write: a run makes what is damaged again, and nothing there
that Prefect would run or believe reaches it.
"""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from tests.flows.conftest import environment, papa
from tests.flows.test_damage import STAGES, cut, damage_all, data_of, scores

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


def plant(store: Path, pickled: str) -> None:
    """Prefect's record of every finished step, where it would keep it: of each probe one that names
    another probe, of the others ``pickled`` or nothing, in turn.
    """
    folder = store / "prefect" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    places = sorted((store / "artifacts").glob("*/[!.]*"))
    probes = [place for place in places if place.parent.name == "probe"]
    assert len(probes) > 1
    others = dict(zip(probes, reversed(probes), strict=True))
    for number, place in enumerate(places):
        serializer, result = "pickle", pickled
        if place in others or number % 2:
            serializer, result = "json", "null"
        if other := others.get(place):
            digest = json.loads((other / "metadata.json").read_text())["digest"]
            result = json.dumps({"stage": "probe", "key": other.name, "digest": digest})
        path = folder / f"{place.parent.name}-{place.name}"
        metadata = {
            "storage_key": str(path),
            "serializer": {"type": serializer},
            "prefect_version": "3.8.8",
        }
        path.write_text(json.dumps({"metadata": metadata, "result": result}))


def test_a_run_makes_what_is_damaged_again_and_follows_nothing_that_was_planted(
    tiny: tuple[str, Path], tmp_path: Path
) -> None:
    """No record of Prefect's, pickled or of another step; no logging configuration, which calls
    whatever it names, and no profile that points to one; neither the study nor its own server. The
    controls have Prefect read the same files, which do create others.
    """
    (study, store), fired, elsewhere = tiny, tmp_path / "fired", tmp_path / "elsewhere.yml"
    before, places = scores(store), damage_all(store, cut)
    plant(store, base64.encodebytes(pickle.dumps(Fires(fired))).decode())
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
        path.write_text(content)
    run = papa("run", study, "--store", str(store))
    assert run.code == 0, run.err
    assert not fired.exists()
    assert run.err.count(": made again: ") == len(STAGES)
    for place in places:
        assert f"{place}/{data_of(place).name} is " in run.err
    pandas.testing.assert_frame_equal(scores(store), before)

    reading = ["-c", RUNS_IT, str(store / "prefect" / "results")]
    subprocess.run([sys.executable, *reading], env=environment(), check=True)
    assert fired.exists(), "the control: Prefect does what its records say"
    for path in planted:
        fired.unlink()
        alone = tmp_path / path.name / path.name
        alone.parent.mkdir()
        path.rename(alone)
        home = environment() | {"PREFECT_HOME": str(alone.parent)}
        subprocess.run([sys.executable, "-c", "import prefect.main"], env=home, capture_output=True)
        assert fired.exists(), "and what is set there"
