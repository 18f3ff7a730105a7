"""Ray's processes on this machine, below a process of their own, which ends them in any case.

Ray waits for ever, or ends the process that it runs in, where one of its processes dies while it
starts. ``RayNode`` is what a driver has of it; ``hold`` runs in the process below, which watches
both sides, and ``start`` in the one below that: Ray's functions do not let others run meanwhile.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import psutil

from papa.files import cache_folder
from papa.temporary import remove_abandoned
from papa.worker import ClusterError

_STORE_BYTES = 512 * 2**20
_POLL_SECONDS = 0.2
_END_SECONDS = 20.0
# Numbers of Linux's prctl.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_VITAL = ("raylet", "gcs_server")
# The first words of the lines between this process and the one that holds Ray.
_ADDRESS = "address"
_FAILED = "failed"
_LOST = "lost"
_JOINED = "joined"
_SAID = "said"


def lost_sentence(name: str) -> str:
    return (
        f"Ray's process {name} on this machine was killed, or ended: run the same command again to "
        "go on"
    )


class RayNode:
    """Ray on this machine, which listens on loopback alone.

    Args:
        folder: for Ray's files: Ray lets everybody write there, so it lies in a folder that its
            owner alone may enter.
        cores: how many tasks may run at once.
        seconds: how long Ray may take to start.

    Raises:
        ClusterError: Ray has not started in time, or one of its processes ended.
    """

    def __init__(self, folder: Path, cores: int, seconds: float) -> None:
        self._folder = folder
        settings = {
            "RAY_raylet_start_wait_time_s": f"{seconds:.0f}",
            "RAY_gcs_server_port_wait_time_s": f"{seconds:.0f}",
            # Its port answers without a login.
            "RAY_enable_metrics_collection": "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "papa.ray_node", "hold", str(folder), str(cores)],
            env=os.environ | settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # A terminal's Ctrl-C is the driver's.
        )
        self._messages: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._lost = ""
        self._is_ended = False
        self._listener = threading.Thread(target=self._listen, name="ray-node", daemon=True)
        self._listener.start()
        try:
            kind, self.address = self._messages.get(timeout=seconds)
        except Empty:
            raise self.refuse(f"it took more than {seconds:.0f} s") from None
        if kind != _ADDRESS:
            raise self.refuse(self.address)

    def joined(self) -> None:
        """Let the holder know that the driver has joined, and looks at ``lost`` from now on."""
        self._tell(_JOINED)

    def check(self) -> None:
        """Raise a ClusterError if one of Ray's processes is dead: Ray may wait for it for ever."""
        if self._lost:
            self._tell(_SAID)
            raise ClusterError(lost_sentence(self._lost))

    def refuse(self, why: object) -> ClusterError:
        """End Ray, which did not start or could not be joined; return the error to raise.

        Ray's log is kept, as its folder is removed.
        """
        self.end()
        reason = f"its process {self._lost} ended" if self._lost else " ".join(str(why).split())
        logs = cache_folder() / "ray-log"
        cause = ""
        with suppress(OSError):
            shutil.rmtree(logs, ignore_errors=True)
            logs.mkdir(parents=True, mode=0o700)
            for log in (self._folder / "session_latest" / "logs").glob("*.*"):
                lines = log.read_text(errors="replace").splitlines()[-1000:]
                (logs / log.name).write_text("\n".join(lines))
                failed = next((line for line in lines if "Check failed: " in line), "")
                if log.name == "raylet.err" and failed:
                    cause = f"; its raylet says: {failed.rpartition('Check failed: ')[2]}"
        return ClusterError(
            f"Ray cannot start on this machine ({reason}): see its log in {logs}, and run the same "
            f"command again{cause}"
        )

    def end(self) -> None:
        """End all of Ray's processes, and wait until they have."""
        self._is_ended = True
        self._tell(_SAID)
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()
        self._process.stdout.close()  # type: ignore[union-attr]

    def _tell(self, word: str) -> None:
        with suppress(OSError, ValueError):
            print(word, file=self._process.stdin, flush=True)

    def _listen(self) -> None:
        for line in self._process.stdout:  # type: ignore[union-attr]
            kind, _, value = line.strip().partition(" ")
            if kind == _LOST:
                self._lost = value
            self._messages.put((kind, value))
        if not self._is_ended:
            self._lost = self._lost or "papa.ray_node"
        self._messages.put((_LOST, ""))


class _Holder:
    """Watches Ray's processes and the driver."""

    def __init__(self, starter: subprocess.Popen[bytes]) -> None:
        self.process = psutil.Process()
        self.starter = starter
        self.lost = ""
        self.is_joined = False

    def watch_ray(self) -> None:
        """Report the first vital process of Ray's that is dead."""
        vital: dict[psutil.Process, str] = {}
        while not self.lost:
            time.sleep(_POLL_SECONDS)
            # To look at all processes takes a while: only until these are found.
            is_starting = len(vital) < len(_VITAL)
            for process in self.process.children(recursive=True) if is_starting else ():
                with suppress(psutil.Error):
                    if process.name() in _VITAL:
                        vital.setdefault(process, process.name())
            self.lost = next((name for process, name in vital.items() if _is_dead(process)), "")
            if self.starter.poll() is not None:
                self.lost = self.lost or "ray"
        with suppress(OSError):
            print(_LOST, self.lost, flush=True)
        if not self.is_joined:
            # So that the driver does not wait for what is left.
            self.kill_ray()

    def watch_driver(self) -> None:
        """Wait until the driver ends, or lets go of Ray; then end everything."""
        has_said = False
        for word in map(str.strip, sys.stdin):
            self.is_joined |= word == _JOINED
            has_said |= word == _SAID
        if self.lost and not has_said:
            # Ray ended the driver before it could say why.
            with suppress(OSError):
                print(f"error: {lost_sentence(self.lost)}", file=sys.stderr, flush=True)
        self.kill_ray()
        remove_abandoned()
        os._exit(0)

    def kill_ray(self) -> None:
        """Kill all processes below this one, those first that would start others."""
        while True:
            children = self.process.children(recursive=True)
            below = [child for child in children if not _is_dead(child)]
            if not below:
                return
            for child in below:
                with suppress(psutil.Error):
                    child.kill()
            psutil.wait_procs(below, timeout=1)


def _is_dead(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def _set_process(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def hold(folder: str, cores: str) -> None:
    """Start Ray in a process, and end it once standard input ends."""
    # What Ray's processes leave behind when they die becomes a child of this one.
    _set_process(_PR_SET_CHILD_SUBREAPER, 1)
    command = [sys.executable, "-P", "-m", "papa.ray_node", "start", folder, cores]
    holder = _Holder(subprocess.Popen(command, stdin=subprocess.DEVNULL))
    threading.Thread(target=holder.watch_ray, daemon=True).start()
    holder.watch_driver()


def start(folder: str, cores: str) -> None:
    """Start Ray, print its address or why there is none, and stay: Ray ends with this process."""
    _set_process(_PR_SET_PDEATHSIG, signal.SIGKILL)
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    class NodeWithoutPages(Node):
        """Ray starts a server of pages, whose metrics ask for no login, whatever it is told."""

        def start_api_server(self, **options: object) -> None:
            self._webui_url = ""

    parameters = RayParams(
        node_ip_address="127.0.0.1",
        num_cpus=int(cores),
        object_store_memory=_STORE_BYTES,
        temp_dir=folder,
        # No port: nobody hands jobs to the agent.
        dashboard_agent_listen_port=-1,
        # No worker's output is shown, and no node is added.
        include_log_monitor=False,  # type: ignore[arg-type]
        no_monitor=True,
    )
    try:
        node = NodeWithoutPages(
            parameters, head=True, shutdown_at_exit=False, spawn_reaper=True, ray_init_cluster=True
        )
    except Exception as error:
        print(_FAILED, " ".join(str(error).split()), flush=True)
    else:
        print(_ADDRESS, node.gcs_address, flush=True)
    # Ray's processes are killed when the thread that started them ends.
    threading.Event().wait()


if __name__ == "__main__":
    {"hold": hold, "start": start}[sys.argv[1]](*sys.argv[2:])
