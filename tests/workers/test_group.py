"""Laws of a group of workers: whoever computes a part, and whoever is lost, the results are the
same.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.errors import NumbersError
from papa.spec import EncoderSpec
from papa.workers import WorkerPool
from papa.workers.group import WorkerGroup, spread
from tests.workers.parts import NUMBERS, Part, both_ready, own_process, refused, squares

LAYERS = 6
EXPECTED = [number * number + LAYERS for number in range(NUMBERS)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    """Three workers, who come up again where a test kills one."""
    with WorkerPool(3, "cpu", tmp_path_factory.mktemp("pool")) as pool:
        yield pool


def test_a_leader_alone_gives_the_results_in_order() -> None:
    with WorkerGroup(SimpleNamespace(layers=LAYERS)).replicas(Part, {"leader": 0}) as replicas:
        found = replicas.map("square", False, range(NUMBERS), [1] * NUMBERS)
    assert [value for value, _ in found] == EXPECTED


@pytest.mark.server
def test_a_worker_that_comes_up_is_noticed_though_nobody_waits_for_it(pool: WorkerPool) -> None:
    """Another is free all the while, so that no call has to wait."""
    import ray

    free = pool._started()
    with free.taken(1):
        with free.taken(1) as (first,):
            with free.taken(1) as (second,):
                lost, _ = ray.get(second.actor.run.remote(own_process, None, {}, 0, None, False))
                os.kill(lost, signal.SIGKILL)
                second.lost = True
            (coming_up,) = free._coming
        ray.get(coming_up)
        with free.taken(1, helpers=1) as group:
            assert {worker.name for worker in group} == {first.name, second.name}
            assert (
                ray.get(second.actor.run.remote(own_process, None, {}, 1, None, False))[0] != lost
            )


@pytest.mark.server
def test_a_helper_shares_the_work_and_may_be_lost(pool: WorkerPool) -> None:
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    both_ready(pool)
    # The worker that was used last has its encoder at hand and is handed out first: calls that
    # follow one another never see the other, however many they are.
    assert len({pool.run(own_process, arguments={}, urgency=1) for _ in range(3)}) == 1
    shared, deadly, after = pool.run(squares, encoder=encoder, arguments={}, urgency=1, helpers=1)
    for found in (shared, deadly, after):
        assert [value for value, _ in found] == EXPECTED
    assert len({process for _, process in shared}) == 2
    assert len({process for _, process in after}) == 1
    # The lost helper is started again: both workers take calls as before.
    both_ready(pool)
    with pytest.raises(NumbersError) as raised:
        pool.run(refused, encoder=encoder, arguments={}, urgency=1, helpers=1)
    assert str(raised.value) == "the loss holds NaN or infinity: use other weights", (
        "and no traceback"
    )
    again, *_ = pool.run(squares, encoder=encoder, arguments={}, urgency=1, helpers=1)
    assert len({process for _, process in again}) == 2


def test_an_error_of_a_part_is_not_hidden(minilm: object) -> None:
    with (
        WorkerGroup(minilm).replicas(Part, {"leader": 0}) as replicas,
        pytest.raises(TypeError, match="unsupported operand"),
    ):
        replicas.map("square", False, [None], [1])


@pytest.mark.parametrize(
    ("sizes", "workers", "chosen"),
    [
        ([155, 217, 132, 193], 2, [1, 0, 0, 1]),
        ([1, 1, 1, 1], 2, [0, 1, 0, 1]),
        ([3, 2, 2, 5], 3, [1, 2, 2, 0]),
        ([7, 7], 1, [0, 0]),
        ([], 2, []),
    ],
)
def test_parts_are_spread_by_size(sizes: list[int], workers: int, chosen: list[int]) -> None:
    assert spread(sizes, workers) == chosen


@pytest.mark.server
def test_more_helpers_than_are_asked_for_stay_free(pool: WorkerPool) -> None:
    """On a cluster one λ would else keep every idle worker from the next."""
    free = pool._started()
    with free.taken(1), free.taken(1), free.taken(1):
        pass
    with free.taken(1, helpers=1) as group, free.taken(1, helpers=5) as left:
        assert (len(group), len(left)) == (2, 1)
    with free.taken(1, helpers=5) as group:
        assert len(group) == 3
