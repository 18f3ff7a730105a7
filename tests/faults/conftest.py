"""The undisturbed study, and the table of faults at the end."""

import shutil
from collections.abc import Callable, Iterator

import pandas
import pytest

from papa.storage.store import Store
from tests.faults.life import Life, scores
from tests.finished import finish_study
from tests.flows.conftest import FEW, TINY, write_study
from tests.flows.processes import wait_until

_lives: list[Life] = []


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_study(tmp_path_factory.mktemp("study"), TINY | {"tasks": [FEW | {"slots": 32}]})


@pytest.fixture(scope="session")
def undisturbed(study: str, tmp_path_factory: pytest.TempPathFactory) -> pandas.DataFrame:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    finish_study(study, store)
    return scores(Store(store))


@pytest.fixture(scope="session")
def live(study: str) -> Iterator[Callable[..., Life]]:
    """Gives the study a life at an address; in the end nothing runs that belongs to one."""

    def begin(address: object, *options: object) -> Life:
        _lives.append(Life(study, str(address), *options))
        return _lives[-1]

    yield begin
    ended = "all that a study started ends"
    wait_until(lambda: not any(life.leftovers() for life in _lives), ended)
    for life in _lives:
        shutil.rmtree(life.temporary)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for fault, outcome in (strike for life in _lives for strike in life.struck):
        terminalreporter.line(f"{fault.victim} at '{fault.point}': {outcome}")
