"""Prefect's and MLflow's servers: who may ask them, and that nothing they say is run."""

import base64
import json
import os
import pickle
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect as connect_socket

from papa.storage.store import Store
from tests.flows import conftest as cli
from tests.flows.history import own_server
from tests.flows.processes import answers, descendants, listening, start_of, status, wait_until
from tests.tasks.tracked import log_study, logged

pytestmark = pytest.mark.server

LOADS_IT = """
import sys
from prefect.client.schemas.objects import State, StateType
from prefect.results import ResultRecordMetadata
metadata = ResultRecordMetadata(storage_key=sys.argv[1], serializer={"type": "pickle"})
State(type=StateType.COMPLETED, data=metadata).result()
"""
ASKED = {
    "Prefect": ("/api/health", "/api/flow_runs/filter", {}),
    "MLflow": ("/health", "/api/2.0/mlflow/experiments/search?max_results=5", None),
}


class Fires:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


@pytest.fixture
def study(shallow: str, tmp_path: Path) -> str:
    return cli.known(cli.write_study(tmp_path, cli.IDENTITY | {"encoders": [shallow]}))


@pytest.mark.slow
def test_a_result_that_the_server_claims_is_not_loaded(study: str, tmp_path: Path) -> None:
    """A trigger in its database completes the flow run, with a result that is a pickle."""
    home = tmp_path / "home"
    fired = tmp_path / "fired"
    record = tmp_path / "record"
    environment = {"PREFECT_HOME": str(home)}
    with own_server(environment):
        pass
    pickled = base64.encodebytes(pickle.dumps(Fires(fired))).decode()
    serialization = {"serializer": {"type": "pickle"}, "prefect_version": "3.8.8"}
    metadata = {"storage_key": str(record), **serialization}
    record.write_text(json.dumps({"metadata": metadata, "result": pickled}))
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        claimed = json.dumps({**metadata, "expiration": None, "storage_block_id": None})
        database.execute(
            "CREATE TRIGGER planted AFTER INSERT ON flow_run_state BEGIN UPDATE flow_run_state SET "
            f"type = 'COMPLETED', name = 'Completed', data = '{claimed}' WHERE id = NEW.id; END"
        )
        database.commit()
    run = cli.papa("run", study, "--store", str(tmp_path / "store"), extra_environment=environment)
    assert not fired.exists()
    assert cli.refusal(run).startswith("error: Prefect's server did not record the study")
    code = [sys.executable, "-c", LOADS_IT, str(record)]
    subprocess.run(code, env=cli.environment(), check=False)
    assert fired.exists(), "the control: Prefect does what its records say"


@pytest.mark.slow
def test_the_server_is_the_users_own(study: str, tmp_path: Path) -> None:
    """On loopback, behind a password, on the user's database; it ends with a killed study."""
    store = tmp_path / "store"
    home = tmp_path / "home"
    other_database = tmp_path / "other.db"
    with closing(sqlite3.connect(other_database)) as there:
        there.execute("CREATE TABLE theirs (x)")
    before = other_database.read_bytes()
    names = [f"PREFECT_{service}_DATABASE_CONNECTION_URL" for service in ("SERVER", "API")]
    environment = dict.fromkeys(names, f"sqlite+aiosqlite:///{other_database}")
    environment["PREFECT_HOME"] = str(home)
    (store / "prefect").mkdir(parents=True)
    (store / "papa-store.json").write_text('{"what": "a store of PAPA", "format": 3}')
    (store / "prefect" / "server.json").write_text('{"process": "x:1:1", "port": 9}')
    with cli.start("run", study, "--store", str(store), extra_environment=environment) as process:
        cli.until(process.stderr, "probe")
        below = descendants(process.pid)
        servers = [pid for pid, command in below.items() if "papa.flows.serve" in command]
        (server,) = [pid for pid in servers if below[pid].startswith(sys.executable)]
        assert listening({process.pid, *below})
        (port,) = listening({server})["127.0.0.1"]
        assert status(f"http://127.0.0.1:{port}/api/flow_runs/filter", body={}) == 401
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    wait_until(lambda: not Path(f"/proc/{server}").exists(), "the server ended")
    assert other_database.read_bytes() == before
    assert (home / "prefect.db").is_file()
    assert [path.name for path in (store / "prefect").iterdir()] == ["server.json"]
    assert cli.papa("run", study, "--store", str(store), extra_environment=environment).code == 0


def serving() -> set[int]:
    """The processes of Prefect's servers below this one."""
    below = descendants(os.getpid())
    return {pid for pid, command in below.items() if "-m papa.flows.serve" in command}


@pytest.mark.slow
def test_a_study_outlives_a_server_of_prefect_that_is_killed(study: str, tmp_path: Path) -> None:
    """It says which, and goes on to its end."""
    store = tmp_path / "store"
    before = serving()
    with own_server() as server:
        (pid,) = serving() - before
        with cli.start("run", study, "--store", str(store), extra_environment=server) as process:
            printed = cli.until(process.stderr, "probe")
            # With the process that keeps its port.
            for killed in (psutil.Process(pid).ppid(), pid):
                os.kill(killed, signal.SIGKILL)
            ended = cli.finish(process, printed)
    assert ended.code == 0, ended.err
    assert server["PREFECT_API_URL"] in ended.err
    assert (store / "studies" / "small" / "report.html").is_file()


def test_two_servers_that_start_at_once_make_one_new_database(tmp_path: Path) -> None:
    def health(_: int) -> int:
        with own_server({"PREFECT_HOME": str(tmp_path / "home")}) as server:
            return status(f"{server['PREFECT_API_URL']}/health")

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(health, range(2))) == [200, 200]


def test_a_study_that_is_refused_leaves_no_server(tmp_path: Path) -> None:
    study = cli.write_study(tmp_path, cli.IDENTITY | {"encoders": [str(tmp_path / "no-encoder")]})
    home = {"PREFECT_HOME": str(tmp_path / "home")}
    refused = cli.papa("run", study, "--store", str(tmp_path / "store"), extra_environment=home)
    assert "no-encoder" in cli.refusal(refused)
    running = [process.info for process in psutil.process_iter(["cmdline", "environ"])]
    ours = [process for process in running if (process["environ"] or {}).items() >= home.items()]
    assert not ours


def test_nobody_else_gets_the_port_of_a_server_that_was_killed() -> None:
    """Its clients go on to send the password there."""
    before = serving()
    with own_server() as server:
        (pid,) = serving() - before
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: start_of(pid) is None, "the server ended")
        port = int(server["PREFECT_API_URL"].split(":")[2].partition("/")[0])
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))


def test_servers_answer_only_who_has_the_password(tiny: tuple[str, Path], tmp_path: Path) -> None:
    store = Store(shutil.copytree(tiny[1], tmp_path / "store"))
    log_study(tiny[0], store)
    with cli.start("ui", "--store", store.address) as process:
        printed = cli.until(process.stdout, "Ctrl-C")
        line = r"^(Prefect|MLflow) +(http://127\.0\.0\.1:\d+) +(papa:\S+)"
        servers = {name: rest for name, *rest in re.findall(line, printed, re.M)}
        for name, (address, password) in servers.items():
            health, path, body = ASKED[name]
            wait_until(partial(answers, address + health), f"{name} answers", process)
            logins = (None, "papa:wrong", password)
            assert [status(address + path, login, body) for login in logins] == [401, 401, 200]
        below = {pid: start_of(pid) for pid in descendants(process.pid)}
        assert listening({process.pid, *below})

        events = f"ws{servers['Prefect'][0].removeprefix('http')}/api/events/in"
        with pytest.raises(WebSocketException):
            connect_socket(events).recv()
        address, password = servers["MLflow"]
        for path in ("config", "message", "sessions/x"):
            assistant = f"{address}/ajax-api/3.0/mlflow/assistant/{path}"
            assert status(assistant, password) == 404, "MLflow has no assistant"
        (run,) = logged(store.root, "small").query("role == 'study'")["id"]
        file = f"{address}/get-artifact?run_uuid={run}&path=results/summary.csv"
        assert (status(file), status(file, password)) == (401, 200)

        os.kill(process.pid, signal.SIGINT)
        cli.finish(process)
    assert process.returncode == 130
    assert len(below) >= 2
    assert not [pid for pid, began in below.items() if start_of(pid) == began], "it left a process"


@pytest.mark.slow
def test_its_servers_end_with_a_killed_ui(tiny: tuple[str, Path], tmp_path: Path) -> None:
    store = shutil.copytree(tiny[1], tmp_path / "store")
    with cli.start("ui", "--store", str(store)) as process:
        cli.until(process.stdout, "Ctrl-C")
        below = {pid: start_of(pid) for pid in descendants(process.pid)}
        assert len(below) >= 3, "Prefect's server, MLflow's and its worker"
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()

    def left() -> list[int]:
        return [pid for pid, began in below.items() if began and start_of(pid) == began]

    wait_until(lambda: not left(), "every server ended")


def test_settings_that_prefect_cannot_read_are_named(study: str, tmp_path: Path) -> None:
    environment = {"PREFECT_CLIENT_MAX_RETRIES": "many"}
    run = cli.papa("run", study, "--store", str(tmp_path / "s"), extra_environment=environment)
    assert run.code == 1
    last = cli.words(run)[-1]
    assert last.startswith("error: ")
    assert "max_retries" in last
    assert "Traceback" not in run.err
