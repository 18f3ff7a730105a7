"""A user's own ``tasks.py`` and package ``flows`` stand beside PAPA's, not in their place."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.flows import conftest as cli
from tests.flows.processes import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
COMMAND = "import sys; from papa.flows.cli import app; sys.argv[0] = 'papa'; app()"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of modules with the names of PAPA's folders, which fail where they are imported."""
    folder = tmp_path / "hostile"
    for file in ("tasks.py", "flows/__init__.py"):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise SystemExit('the wrong module was imported')\n")
    return folder


def papa(*arguments: str, first: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run the command with folders that are first on the path of it and of all that it starts."""
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        env={**cli.environment(), "PYTHONPATH": os.pathsep.join(map(str, first))},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.server
def test_a_study_runs_beside_modules_of_the_same_names(
    shallow: str, hostile: Path, tmp_path: Path
) -> None:
    study = cli.write_study(tmp_path, cli.IDENTITY | {"encoders": [shallow]})
    ended = papa("run", study, "--store", str(tmp_path / "store"), first=[hostile])
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "store" / "studies" / "small" / "summary.csv").is_file()


@pytest.mark.server
@pytest.mark.slow
def test_the_wheel_holds_one_package_and_runs_beside_modules_of_the_same_names(
    shallow: str, hostile: Path, tmp_path: Path
) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    wheels = tmp_path / "wheels"
    subprocess.run([*build, "--wheel-dir", str(wheels), str(ROOT)], check=True)
    (wheel,) = wheels.glob("*.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    packages = {path.name for path in unpacked.iterdir() if path.suffix != ".dist-info"}
    assert packages == {"papa"}
    study = cli.write_study(tmp_path, cli.IDENTITY | {"encoders": [shallow]})
    for command in ("plan", "run"):
        ended = papa(command, study, "--store", str(tmp_path / "store"), first=[hostile, unpacked])
        assert ended.returncode == 0, ended.stderr
