"""Run the integration tests, ``python -m tests.integration [pytest's arguments]``, in two network
namespaces, which are two hosts: the driver, services and Ray's head at 10.77.0.1, its other node at
10.77.0.2. Where they are not permitted, tests that need them skip.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HOST = "10.77.0.1"
OTHER = "10.77.0.2"
NAMESPACE = "PAPA_TEST_NAMESPACE"
OTHER_NAMESPACE = "PAPA_TEST_OTHER_NAMESPACE"

MOUNTS = "PAPA_TEST_MOUNTS"
"""The variable with the mount namespace of the machine: in that of the tests /sys is another."""


@contextmanager
def namespaces() -> Iterator[tuple[str, str]]:
    """Two connected network namespaces, by name; an OSError or CalledProcessError without them."""
    names = f"papa-{os.getpid()}-1", f"papa-{os.getpid()}-2"
    try:
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        pair = "link add veth0 type veth peer name veth0 netns"
        _ip("-n", names[0], *pair.split(), names[1])
        for name, address in zip(names, (HOST, OTHER), strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "veth0")
            _ip("-n", name, "link", "set", "veth0", "up")
        yield names
    finally:
        for name in names:
            pids = ["ip", "netns", "pids", name]
            left = subprocess.run(pids, capture_output=True, text=True, check=False).stdout
            for process in map(int, left.split()):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _to_the_end(command: list[str], environment: dict[str, str]) -> int:
    with subprocess.Popen(command, env=environment) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
        while True:
            with suppress(KeyboardInterrupt):  # the terminal told pytest, too
                return process.wait()


def main(arguments: list[str]) -> int:
    options = ["-m", "integration", "-o", "testpaths=tests/integration"]
    tests = [sys.executable, "-m", "pytest", *options, *arguments]
    try:
        with namespaces() as (here, there):
            environment = {**os.environ, NAMESPACE: here, OTHER_NAMESPACE: there}
            environment[MOUNTS] = f"/proc/{os.getpid()}/ns/mnt"
            return _to_the_end(["ip", "netns", "exec", here, *tests], environment)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        skipped = "tests that need them skip"
        print(f"no network namespaces here ({str(reason).strip()}): {skipped}", file=sys.stderr)
        return subprocess.run(tests, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
