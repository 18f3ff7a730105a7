"""A folder with a study in it may hold anything: engines take no settings or modules from it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from papa.errors import PapaError
from papa.flows.environment import outside_working_folder
from tests.flows import conftest as cli
from tests.flows.history import ask
from tests.flows.processes import PATIENCE_SECONDS

MODULES = (
    *("sqlalchemy", "aiosqlite", "uvicorn", "prefect", "ray", "mlflow", "flask", "gunicorn.conf"),
    *("pyarrow", "numpy", "torch", "psutil", "yaml", "sitecustomize", "usercustomize", "papa"),
    *("tasks", "flows"),
)
SETTINGS = "import prefect.logging.configuration as it; it.setup_logging()"


@pytest.fixture
def folder(shallow: str, tmp_path: Path) -> Path:
    """A folder with a study and files that leave a marker in ``fired`` where they are read."""
    folder = tmp_path / "studies"
    fired = tmp_path / "fired"
    folder.mkdir()
    fired.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(fired / name)!r}, 'w')\n")
    logging = folder / "logging.yml"
    factory = {"()": "os.makedirs", "name": str(fired / "logging"), "exist_ok": True}
    logging.write_text(json.dumps({"version": 1, "formatters": {"any": factory}}))
    nowhere = "http://127.0.0.1:9/api"
    variables = f"PREFECT_LOGGING_SETTINGS_PATH={logging}\nPREFECT_API_URL={nowhere}\n"
    (folder / ".env").write_text(variables)
    table = f"[{{0}}logging]\nconfig_path = '{logging}'\n[{{0}}api]\nurl = '{nowhere}'\n"
    (folder / "prefect.toml").write_text(table.format(""))
    (folder / "pyproject.toml").write_text(table.format("tool.prefect."))
    rows = [{"text": f"a text number {number}", "label": number % 2} for number in range(40)]
    task = cli.task_on("numbers", cli.rows_in(folder, "numbers", rows))
    cli.write_study(folder, cli.IDENTITY | {"encoders": [shallow], "tasks": [task]})
    return folder


def in_folder(
    folder: Path, *command: str, server: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**cli.environment(), **(server or {}), "PATH": programs}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment | {"HOME": str(folder.parent)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def markers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder.parent / "fired").iterdir())


@pytest.mark.server
def test_commands_take_nothing_from_the_working_folder(folder: Path) -> None:
    for command in ("check", "plan", "run"):
        ended = in_folder(folder, "papa", command, "study.yaml", "--store", "store")
        assert ended.returncode == 0, ended.stderr
        assert not markers(folder), command
    assert (folder / "store" / "studies" / "small" / "report.html").is_file()

    with subprocess.Popen(
        [Path(sys.executable).with_name("papa"), "ui", "--store", "store"],
        cwd=folder,
        env=cli.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        cli.until(process.stdout, "Ctrl-C")
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert not markers(folder)

    in_folder(folder, sys.executable, "-P", "-c", SETTINGS)
    in_folder(folder, sys.executable, "-c", "import sqlalchemy")
    assert {"logging", "sqlalchemy"} <= {*markers(folder)}, "the control: engines and Python would"


@pytest.mark.slow
@pytest.mark.server
def test_a_deployed_run_reads_nothing_beside_it(folder: Path, prefect: dict[str, str]) -> None:
    """Its worker is started as ``papa deploy`` says, in that folder."""
    ask(prefect, "work_pools/", {"name": "papa", "type": "process", "base_job_template": {}})
    deployed = in_folder(folder, "papa", "deploy", "study.yaml", "--store", "store", server=prefect)
    assert deployed.returncode == 0, deployed.stderr
    outputs = dict(line.split(maxsplit=1) for line in deployed.stdout.splitlines())
    now = in_folder(folder, "sh", "-c", outputs["now"], server=prefect)
    assert now.returncode == 0, now.stderr
    worker = outputs["worker"].replace(")", " --run-once)")
    worked = in_folder(folder, "sh", "-c", worker, server=prefect)
    assert worked.returncode == 0, worked.stderr
    assert (folder / "store" / "studies" / "small" / "report.html").is_file(), worked.stderr
    assert not markers(folder)


@pytest.mark.parametrize("kind", ["file", "link", "not empty", "others write"])
def test_a_foreign_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path))
    folder = tmp_path / f"empty-{os.geteuid()}"
    if kind == "file":
        folder.touch()
    elif kind == "link":
        (tmp_path / "other").mkdir()
        folder.symlink_to(tmp_path / "other")
    else:
        folder.mkdir()
        folder.chmod(0o777 if kind == "others write" else 0o700)
    if kind == "not empty":
        (folder / "prefect.toml").touch()
    with pytest.raises(PapaError, match=str(folder)), outside_working_folder():
        pass


def test_relative_paths_keep_their_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAPA_CACHE", "cache")
    monkeypatch.setenv("PREFECT_HOME", "home")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///runs/mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", "certificates/mlflow.pem")
    monkeypatch.setenv("PYTHONPATH", f":lib:{tmp_path}/other:")
    with outside_working_folder():
        assert not list(Path().iterdir())
        assert os.environ["PAPA_CACHE"] == f"{tmp_path}/cache"
        assert os.environ["PREFECT_HOME"] == f"{tmp_path}/home"
        assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/runs/mlflow.db"
        certificate = os.environ["MLFLOW_TRACKING_SERVER_CERT_PATH"]
        assert certificate == f"{tmp_path}/certificates/mlflow.pem"
        assert os.environ["PYTHONPATH"] == f"{tmp_path}/lib:{tmp_path}/other"
    assert Path.cwd() == tmp_path
