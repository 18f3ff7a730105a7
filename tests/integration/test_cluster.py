"""Studies on a cluster of two hosts that share nothing but the object store: one host lost, two
studies at once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.processes import PATIENCE_SECONDS, descendants, wait_until
from tests.integration.s3 import S3Server
from tests.integration.service import Service
from tests.integration.studies import findings, papa_run, reviews, to_the_end
from tests.integration.test_schedule import logged_runs


def study(name: str, epochs: int = 3) -> str:
    return reviews(name, 512, epochs, [1, 0.5, 0])


WORKS = "ray::Worker.run"


@pytest.fixture
def environment(
    site: dict[str, str], prefect: Service, tracking: Service, head: Service
) -> dict[str, str]:
    return {**site, **prefect.environment, **tracking.environment, **head.environment}


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> dict[tuple[str, str], object]:
    """What the study finds on this host alone, one worker, a folder for a store."""
    store = place / "undisturbed" / "store"
    with papa_run(
        store.parent, study("alone"), {}, "--store", str(store), "--workers", "1"
    ) as process:
        to_the_end(process)
    return findings(str(store))


@pytest.mark.parametrize("stage", ["average", "probe"])
def test_a_host_lost_in_the_middle_changes_nothing(
    place: Path,
    stage: str,
    undisturbed: dict[tuple[str, str], object],
    environment: dict[str, str],
    storage: S3Server,
    node: Service,
) -> None:
    store = f"s3://papa/lost-in-{stage}"
    options = ("--ray-address", environment["RAY_ADDRESS"], "--store", store)
    name = f"lost-in-{stage}"
    with papa_run(place / name, study(name), environment, *options) as process:

        def in_the_middle() -> bool:
            log = process.log.read_text()
            begun = {line.partition(":")[0] for line in log.splitlines() if ": started" in line}
            done = {line.partition(":")[0] for line in log.splitlines() if ": done" in line}
            busy = any(
                command.startswith(WORKS) for command in descendants(node.process.pid).values()
            )
            assert process.process.poll() is None, f"over before its '{stage}' was met:\n{log}"
            return busy and any(name.startswith(f"{stage} ·") for name in begun - done)

        wait_until(in_the_middle, PATIENCE_SECONDS, f"the other host works on '{stage}'")
        node.kill()
        to_the_end(process)
    assert findings(store, storage) == undisturbed


def test_two_studies_at_once_share_one_store_and_one_tracking_server(
    place: Path,
    undisturbed: dict[tuple[str, str], object],
    environment: dict[str, str],
    tracking: Service,
    storage: S3Server,
    node: Service,
) -> None:
    store = "s3://papa/shared"
    options = ("--ray-address", environment["RAY_ADDRESS"], "--store", store, "--workers", "1")
    names = ["one-of-two", "other-of-two"]
    with (
        papa_run(place / names[0], study(names[0]), environment, *options) as one,
        papa_run(place / names[1], study(names[1], epochs=4), environment, *options) as other,
    ):
        to_the_end(one)
        to_the_end(other)
    found = findings(store, storage)
    assert found.items() >= undisturbed.items()
    assert sorted(stage for stage, _ in found) == ["average", *["probe"] * 6, "rank", "tokenise"]
    assert [logged_runs(tracking, name) for name in names] == [
        {"study": 1, "curve": 1, "cell": 3}
    ] * 2
