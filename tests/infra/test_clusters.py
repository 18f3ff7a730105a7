"""The Ray cluster files, by Ray's own schema and by what KubeRay asks for."""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

INFRA = Path(__file__).parents[2] / "infra"


@pytest.fixture(scope="module")
def launcher() -> dict[str, Any]:
    return yaml.safe_load((INFRA / "ray-cluster.yaml").read_text())


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    return yaml.safe_load((INFRA / "kuberay.yaml").read_text())


def test_the_launchers_file_fits_rays_schema(launcher: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="it comes with Ray")
    found = find_spec("ray")
    assert found is not None
    assert found.origin is not None
    schema = json.loads((Path(found.origin).parent / "autoscaler" / "ray-schema.json").read_text())
    jsonschema.validate(launcher, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**launcher, "worker_ips": []}, schema)


def test_every_node_starts_with_the_token(launcher: dict[str, Any]) -> None:
    assert "~/.ray/auth_token" in launcher["file_mounts"]
    for commands in (launcher["head_start_ray_commands"], launcher["worker_start_ray_commands"]):
        starts = [one for one in commands if "ray start" in one]
        assert starts
        assert all(one.startswith("RAY_AUTH_MODE=token ") for one in starts)
    assert launcher["max_workers"] == len(launcher["provider"]["worker_ips"])


def test_kuberay_runs_the_ray_that_is_installed_with_a_token(cluster: dict[str, Any]) -> None:
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert cluster["spec"]["rayVersion"] == version("ray")
    assert cluster["spec"]["authOptions"] == {"mode": "token"}


def test_no_pod_runs_as_root_writes_to_its_image_or_lacks_probes(cluster: dict[str, Any]) -> None:
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    assert [group.get("groupName") for group in groups] == [None, "gpu", "cpu"]
    for group in groups:
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert {"/tmp", "/home/papa"} <= {
                mount["mountPath"] for mount in container["volumeMounts"]
            }
            assert container["resources"]["limits"].keys() >= {"cpu", "memory"}
            for probe in (container["readinessProbe"], container["livenessProbe"]):
                assert (INFRA.parent / probe["exec"]["command"][0]).is_file()
            mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
            assert mounts <= {volume["name"] for volume in pod.get("volumes", [])}
    assert (
        groups[1]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    )
