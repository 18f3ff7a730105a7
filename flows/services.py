"""The services that a study would use: whether each answers, and whether it takes the credentials.

They are asked as a study asks them, all at once, and none for longer than ``PATIENCE`` seconds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from flows.environment import missing_engines, prepare_environment
from flows.installed import Finding, State
from flows.server import check_server, running_server
from papa.errors import PapaError, TransientError
from papa.storage.filesystem import in_time
from papa.study.store import Store, check_is_ours, is_marked
from papa.workers.ray_session import ClusterError, reach
from tasks.mlflow import check_tracking, database_of, tracking_address, without_password

PATIENCE = 10.0
_NO_STUDY = "papa-doctor"


def services(store: Store, ray_address: str | None) -> list[Finding]:
    """Ask the hub, the store, and MLflow, Prefect and Ray where they are installed; nothing is made
    in the store.
    """
    looks: list[Callable[[], Finding]] = [_hub, lambda: _store(store)]
    if not missing_engines():
        looks += [
            _mlflow(store),
            _prefect(store),
            lambda: _ray(ray_address or os.environ.get("RAY_ADDRESS")),
        ]
    with ThreadPoolExecutor(len(looks)) as pool:
        return [future.result() for future in [pool.submit(look) for look in looks]]


def _asked(what: str, where: str, ask: Callable[[], str | None], *, broken: bool = True) -> Finding:
    """What a service answers."""
    try:
        return Finding(what, "ok", f"{where} answers{in_time(PATIENCE, ask) or ''}")
    except PapaError as error:
        # A message of ours ends in what to do.
        found, _, advice = str(error).rpartition(": ")
        state: State = "not reachable" if isinstance(error, TransientError) else "refused"
        return Finding(what, state, found, advice, broken)
    except OSError as error:
        advice = "look at what lies there, and at the network where that is elsewhere"
        return Finding(what, "not reachable", f"{where}: {error}", advice, broken)


def _hub() -> Finding:
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import HTTPError
    from huggingface_hub.utils import build_hf_headers, get_session

    where = without_password(constants.ENDPOINT)
    if constants.is_offline_mode():
        return Finding(
            "hub", "not configured", "HF_HUB_OFFLINE is set: what is on this machine is used"
        )

    def ask() -> str:
        address = f"{constants.ENDPOINT}/api/whoami-v2"
        try:
            status = (
                get_session().get(address, headers=build_hf_headers(), timeout=PATIENCE).status_code
            )
        except (HTTPError, ValueError):
            status = 0
        if not status or status >= 500:
            reason = f"status {status}" if status else "no answer"
            raise TransientError(
                f"{where} ({reason}): check the network and HF_ENDPOINT; what is on this machine "
                "already can be used"
            )
        if get_token() is None:
            return "; no token, so public models and datasets alone"
        if status in (401, 403):
            raise PapaError(
                f"{where} refuses the token (status {status}): log in with 'hf auth login' or set "
                "HF_TOKEN"
            )
        return (
            "; the token is valid"
            if status == 200
            else f"; the token could not be checked (status {status})"
        )

    return _asked("hub", where, ask, broken=False)


def _store(store: Store) -> Finding:
    def ask() -> str:
        store.backend.check(write=True)
        if is_marked(store.address):
            return ", a store of PAPA"
        check_is_ours(store.address)
        return ", no store yet: the first study makes it"

    return _asked("store", store.address, ask)


def _mlflow(store: Store) -> Callable[[], Finding]:
    address = tracking_address(store)
    database, where = database_of(address), without_password(address)
    if database is not None and not database.exists():
        made = Finding("MLflow", "ok", f"{where}: the first study makes it")
        return lambda: made
    # Two engines imported at once, in two threads, could meet half a module.
    import mlflow  # noqa: F401

    return lambda: _asked("MLflow", where, partial(check_tracking, address, _NO_STUDY))


def _prefect(store: Store) -> Callable[[], Finding]:
    address = os.environ.get("PREFECT_API_URL")
    if not address:
        port = running_server(store)
        found = (
            f"the one of papa ui, on port {port}"
            if port
            else "each study starts a server of its own"
        )
        return lambda: Finding("Prefect", "ok" if port else "not configured", found)
    with tempfile.TemporaryDirectory() as home:
        prepare_environment(Store(home))
        import prefect  # noqa: F401

    return lambda: _asked("Prefect", without_password(address), check_server)


def _ray(address: str | None) -> Finding:
    if not address:
        return Finding("Ray", "not configured", "each study starts it on this machine")

    def ask() -> str:
        try:
            reach(address)
        except ClusterError as error:
            raise TransientError(str(error)) from None
        return "; whether it takes this machine's token is known when a study joins it"

    return _asked("Ray", address, ask)
