"""A deployed run: which study it refuses, and that each of its errors reaches ``papa list``."""

from pathlib import Path

import pytest

from papa.errors import SpecError
from papa.flows.cli.lists import stored_studies
from papa.flows.study import digest_of, run_study
from papa.spec.file import load_study
from papa.storage.store import Store
from tests.flows import conftest as cli

pytestmark = pytest.mark.unchecked


def run_deployed(study: Path, store: Path, **parameters: str) -> None:
    """What a worker calls, without Prefect around it."""
    run_study.fn(study=str(study), store=str(store), **parameters)


def reason(store: Path) -> str:
    """Why the only study of a store failed."""
    (study,) = stored_studies(Store(store))
    assert (study.name, study.state) == ("small", "failed")
    return study.reason


def test_a_study_that_was_changed_since_is_refused(tmp_path: Path) -> None:
    study = Path(cli.write_study(tmp_path, cli.SMALL))
    digest = digest_of(load_study(study))
    cli.write_study(tmp_path, cli.SMALL | {"probe_seeds": [0, 1, 2]})
    with pytest.raises(SpecError, match=digest[:12]):
        run_deployed(study, tmp_path / "store", name="small", digest=digest)
    assert digest[:12] in reason(tmp_path / "store")


def test_a_study_of_another_name_is_refused(tmp_path: Path) -> None:
    study = Path(cli.write_study(tmp_path, cli.SMALL))
    digest = digest_of(load_study(study))
    cli.write_study(tmp_path, cli.SMALL | {"name": "other"})
    with pytest.raises(SpecError, match=digest[:12]):
        run_deployed(study, tmp_path / "store", name="small", digest=digest)
    assert digest[:12] in reason(tmp_path / "store")


def test_a_study_whose_file_is_gone_is_listed_as_failed(tmp_path: Path) -> None:
    study = tmp_path / "absent.yaml"
    with pytest.raises(SpecError, match=str(study)):
        run_deployed(study, tmp_path / "store", name="small")
    assert str(study) in reason(tmp_path / "store")


@pytest.mark.parametrize("parameter", ["study", "store"])
def test_a_relative_path_is_refused(tmp_path: Path, parameter: str) -> None:
    """It would be another one in each worker's folder."""
    paths = {"study": Path(cli.write_study(tmp_path, cli.SMALL)), "store": tmp_path / "store"}
    paths[parameter] = Path(paths[parameter].name)
    with pytest.raises(SpecError, match=f"^{parameter}: '{paths[parameter]}'"):
        run_deployed(paths["study"], paths["store"])
