"""The Ray cluster files, by Ray's own schema and by what KubeRay asks for."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

INFRA = Path(__file__).parents[2] / "infra"


def test_the_launchers_file_fits_rays_schema_and_every_node_starts_with_the_token() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="it comes with Ray")
    ray = pytest.importorskip("ray")
    launcher = yaml.safe_load((INFRA / "ray-cluster.yaml").read_text())
    schema = json.loads((Path(ray.__file__).parent / "autoscaler/ray-schema.json").read_text())
    jsonschema.validate(launcher, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**launcher, "worker_ips": []}, schema)
    assert "~/.ray/auth_token" in launcher["file_mounts"]
    for commands in (launcher["head_start_ray_commands"], launcher["worker_start_ray_commands"]):
        starts = [one.startswith("RAY_AUTH_MODE=token ") for one in commands if "ray start" in one]
        assert {*starts} == {True}
    assert launcher["max_workers"] == len(launcher["provider"]["worker_ips"])


def test_kuberay_runs_the_ray_that_is_installed_with_a_token_and_pods_may_do_nothing_else() -> None:
    cluster = yaml.safe_load((INFRA / "kuberay.yaml").read_text())
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
                assert (INFRA.parent / probe["exec"]["command"][0]).is_file()
