"""Many studies, and a large one, on one Prefect server, one MLflow server and one store
(``benchmarks.load``).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import yaml

STUDIES, CACHED = 8, 6
EVERY_S = 0.5


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """MLflow's server on loopback, SQLite and files behind it; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "host": "127.0.0.1",
        "port": port,
        "workers": 1,
        "backend-store-uri": f"sqlite:///{folder}/mlflow.db",
        "artifacts-destination": f"{folder}/files",
    }
    command = [sys.executable, "-m", "mlflow", "server"]
    command += [f"--{name}={value}" for name, value in options.items()]
    own = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "mlflow.log").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        while not _answers(f"{address}/health"):
            assert process.poll() is None, (folder / "mlflow.log").read_text()[-2000:]
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def studies(folder: Path) -> dict[str, Any]:
    """One study by itself, then eight at once: six of its seed, whose cells are there, and two of
    the same new seed.
    """
    from flows.environment import prepare_engines, start_server
    from papa.study.store import Store

    store = Store(folder / "store")
    store.make()
    prepare_engines(store.root, verbose=False)
    start_server()()
    task = {"name": "reviews", "slots": 32, "train_rows": 64, "validation_rows": 48}
    study = {"encoders": ["embedded/all-MiniLM-L6-v2"], "tasks": [task], "fractions": [1, 0.5, 0]}
    study |= {"ranking": {"epochs": 1}, "execution": {"shard_rows": 16, "workers": 1}}
    with mlflow_server(folder) as tracking:
        environment = {**os.environ, "MLFLOW_TRACKING_URI": tracking, "OMP_NUM_THREADS": "1"}

        def begun(number: int) -> subprocess.Popen[str]:
            path = folder / f"study-{number}.yaml"
            path.write_text(
                yaml.safe_dump(
                    {"name": f"study-{number}", **study, "seeds": [int(number > CACHED)]}
                )
            )
            command = [sys.executable, "-c", "from flows.cli import app; app()", "run", str(path)]
            options: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
            return subprocess.Popen(
                [*command, "--store", store.address], env=environment, **options
            )

        seconds: list[float] = []
        failed: dict[int, str] = {}
        for numbers in ([0], range(1, STUDIES + 1)):
            started, running = time.monotonic(), {number: begun(number) for number in numbers}
            try:
                said = {number: process.communicate()[1] for number, process in running.items()}
            finally:
                for process in running.values():
                    process.terminate()
            seconds.append(time.monotonic() - started)
            print(
                seconds,
                [process.returncode for process in running.values()],
                file=sys.stderr,
                flush=True,
            )
            failed |= {
                number: said[number][-600:]
                for number, process in running.items()
                if process.returncode
            }
        flows = asked(f"{os.environ['PREFECT_API_URL']}/flow_runs/filter", {"limit": 100})
        found = asked(f"{tracking}/api/2.0/mlflow/experiments/search", {"max_results": 100})
    made = {stage.name: len(list(stage.iterdir())) for stage in Path(store.artifacts).iterdir()}
    return {
        "one study s": seconds[0],
        f"{STUDIES} at once s": seconds[1],
        "failed": failed,
        "artifacts": made,
        "completed in Prefect": sum(flow["state_type"] == "COMPLETED" for flow in flows),
        "experiments in MLflow": sum(
            experiment["name"].startswith("study-") for experiment in found["experiments"]
        ),
    }


def asked(address: str, question: dict[str, Any]) -> Any:
    """What a server answers to a question in JSON."""
    request = urllib.request.Request(
        address, json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def poll(addresses: dict[str, str], over: Event, path: Path) -> None:
    """Ask every server for its newest again and again, and write how long answers took so far, in
    ms.
    """
    questions = {"Prefect": {"limit": 10}, "MLflow": {"max_results": 10}}
    took: dict[str, list[float]] = {name: [] for name in addresses}
    failed = dict.fromkeys(addresses, 0)
    while not over.wait(EVERY_S):
        for name, address in addresses.items():
            started = time.perf_counter()
            try:
                asked(address, questions[name])
            except OSError:
                failed[name] += 1
            took[name].append(1e3 * (time.perf_counter() - started))
        document = {}
        for name, times in took.items():
            median, nineteen, most = (
                sorted(times)[int(share * (len(times) - 1))] for share in (0.5, 0.95, 1.0)
            )
            document[name] = {"asked": len(times), "failed": failed[name]}
            document[name] |= {"median": int(median), "95 %": int(nineteen), "most": int(most)}
        path.write_text(json.dumps(document))


@contextmanager
def polled(addresses: dict[str, str], path: Path) -> Iterator[None]:
    """A process asks the servers while the block runs."""
    context = get_context("spawn")
    over = context.Event()
    process = context.Process(target=poll, args=(addresses, over, path))
    process.start()
    try:
        yield
    finally:
        over.set()
        process.join()
        # Also where the block was ended from outside.
        print(path.read_text(), file=sys.stderr, flush=True)


def cells(folder: Path) -> dict[str, Any]:
    """A study of 100 cells, then one of 2,000 while both servers are asked."""
    from benchmarks.scale import run

    answers = folder / "answers.json"
    with mlflow_server(folder) as tracking:
        os.environ["MLFLOW_TRACKING_URI"] = tracking
        found = run([1, 20], 4, 8, 0.05, folder)
        next(found)
        addresses = {
            "Prefect": f"{os.environ['PREFECT_API_URL']}/flow_runs/filter",
            "MLflow": f"{tracking}/api/2.0/mlflow/experiments/search",
        }
        with polled(addresses, answers):
            large = next(found)
    return {**large, "ms of an answer": json.loads(answers.read_text())}
