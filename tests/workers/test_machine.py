"""A machine that does not fit the driver's is refused in a sentence."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.errors import EncoderError
from papa.spec import EncoderSpec
from papa.workers import WorkerPool
from papa.workers.ray_session import ClusterError
from papa.workers.worker import Machine, MachineError
from tests.workers.parts import own_process


def test_the_drivers_own_machine_fits(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    marker.touch()
    Machine.of_driver(marker).check()


def test_another_version_is_refused_with_both() -> None:
    machine = replace(Machine.of_driver(None), versions=(("torch", "1.13.1"),))
    found = torch.__version__.partition("+")[0]
    with pytest.raises(
        MachineError, match=rf"has torch {found}, the driver has 1\.13\.1: install the same version"
    ):
        machine.check()


def test_a_folder_that_is_not_shared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=f"does not see {tmp_path}.* s3://"):
        Machine.of_driver(tmp_path / "gone").check()


def test_a_machine_without_the_encoder_is_refused(tmp_path: Path) -> None:
    here = resolve_encoder(EncoderSpec(name=EMBEDDED))
    machine = Machine.of_driver(None)
    assert machine.encoder(here) == here
    with pytest.raises(EncoderError, match=r"lacks the encoder: there is no encoder folder"):
        machine.encoder(replace(here, name=str(tmp_path / "none")))
    with pytest.raises(EncoderError, match=r"another .* \(expected digest 000000000000, found"):
        machine.encoder(replace(here, digest="0" * 64))


@pytest.mark.parametrize("address", ["nonsense", "ray://head", "head:port"])
def test_what_is_no_address_is_said(address: str) -> None:
    with (
        WorkerPool(1, "cpu", address=address) as pool,
        pytest.raises(ClusterError, match="is no address"),
    ):
        pool.run(own_process, arguments={})


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
@pytest.mark.server
def test_an_unreachable_cluster_is_said_at_once_and_once(form: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = form.format(taken.getsockname()[1])
        started = time.monotonic()
        with WorkerPool(1, "cpu", address=address) as pool:
            for _ in range(3):
                with pytest.raises(ClusterError, match=f"no Ray cluster answers at {address}"):
                    pool.run(own_process, arguments={}, urgency=1)
        assert time.monotonic() - started < 10
