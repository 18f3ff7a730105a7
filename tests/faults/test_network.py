"""The network between a study and its store is lost for a while: two namespaces, and the line
between them.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas
import pytest

from tests.faults.life import Live
from tests.faults.points import NAMED, Seen
from tests.integration.__main__ import OTHER, namespaces
from tests.integration.s3 import s3_server

pytestmark = pytest.mark.faults

_NETWORK = 0x40000000  # CLONE_NEWNET
_TRIES_TO_CONNECT = "02"
_MAKE_BUCKET = """
import sys
from s3fs import S3FileSystem
key, secret, endpoint = sys.argv[1:]
S3FileSystem(key=key, secret=secret, endpoint_url=endpoint).call_s3("create_bucket", Bucket="papa")
"""


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """What this thread starts in the block is in a network namespace."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _enter(f"/run/netns/{namespace}")
        yield
    finally:
        _enter(f"/proc/self/fd/{own}")
        os.close(own)


def _enter(namespace: str) -> None:
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _NETWORK):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)


class Cut:
    """The other host's end of the line is down from a point on, until a connection was asked for in
    vain.
    """

    def __init__(self, point: str, other: str) -> None:
        self.point, self.other = NAMED[point], other
        self.down = self.up = False

    def __call__(self, seen: Seen, process: subprocess.Popen[str]) -> None:
        if not self.down and self.point.reached(seen):
            self._line("down")
            self.down = True
        elif self.down and not self.up and self._asked(seen.pid):
            self._line("up")
            self.up = True

    def _line(self, state: str) -> None:
        subprocess.run(["ip", "-n", self.other, "link", "set", "veth0", state], check=True)

    def _asked(self, pid: int) -> bool:
        try:
            table = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
        except OSError:
            return False
        return any(line.split()[3] == _TRIES_TO_CONNECT for line in table)


@pytest.mark.parametrize("point", ["average started", "rank started", "aggregate started"])
def test_the_line_to_the_store_is_cut(
    point: str, undisturbed: pandas.DataFrame, live: Live, tmp_path: Path
) -> None:
    try:
        with (
            namespaces() as (here, there),
            inside(there),
            s3_server(tmp_path / "s3", OTHER) as storage,
        ):
            with inside(here):
                bucket = [sys.executable, "-c", _MAKE_BUCKET, *storage.owner, storage.endpoint]
                subprocess.run(bucket, check=True)
                cache = tmp_path / "cache"
                more = {**storage.environment(), "PAPA_CACHE": str(cache)}
                life = live("s3://papa/store", more)
                cut = Cut(point, there)
                code = life.once(cut)
                assert cut.down
                if not cut.up:
                    cut._line("up")
                if code:
                    life.live([])
            (found,) = cache.glob("stores/*/studies/small/results.parquet")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    pandas.testing.assert_frame_equal(
        pandas.read_parquet(found).drop(columns="seconds"), undisturbed
    )
