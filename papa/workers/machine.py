"""What a worker's machine must share with the driver's: libraries, and the encoder's files."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from papa.encoders.reference import EncoderReference, resolve_encoder
from papa.errors import EncoderError, HubUnreachableError, PapaError
from papa.spec import EncoderSpec

_LIBRARIES = ("papa-attention", "torch", "transformers", "numpy")


class MachineError(PapaError):
    """A machine of the cluster does not fit the driver's."""


@dataclass(frozen=True)
class Machine:
    """What of the driver's machine those of its workers must share.

    Attributes:
        versions: of the libraries that results depend on, without build labels such as ``+cu126``.
        shared: a file that every machine must see; None where the store is no folder.
        elsewhere: whether workers may be on other machines.
    """

    versions: tuple[tuple[str, str], ...] = ()
    shared: str | None = None
    elsewhere: bool = False

    @classmethod
    def of_driver(cls, shared: Path | None) -> Machine:
        """The machine of a driver whose workers are on a cluster."""
        return cls(tuple(_versions().items()), str(shared) if shared else None, elsewhere=True)

    def check(self) -> None:
        """Compare with the machine that this runs on."""
        if not self.elsewhere:
            return
        found = _versions()
        for name, wanted in self.versions:
            if found[name] != wanted:
                raise MachineError(
                    f"node {_node()} has {name} {found[name]}, the driver has {wanted}: "
                    "install the same version on every node"
                )
        if self.shared is not None and not Path(self.shared).is_file():
            raise MachineError(
                f"node {_node()} does not see {Path(self.shared).parent} of the store: use a store "
                "that all nodes reach, such as --store s3://bucket/papa, or a shared folder"
            )

    def encoder(self, reference: EncoderReference) -> EncoderReference:
        """The same encoder by its files on this machine."""
        if not self.elsewhere:
            return reference
        try:
            found = resolve_encoder(EncoderSpec(name=reference.name, revision=reference.revision))
        except (EncoderError, HubUnreachableError) as error:
            raise EncoderError(f"node {_node()} lacks the encoder: {error}") from None
        if found.digest != reference.digest:
            raise EncoderError(
                f"node {_node()} has another '{reference.name}' in {found.folder} (expected digest "
                f"{reference.digest[:12]}, found {found.digest[:12]}): put the same files on every "
                "node"
            )
        return replace(reference, folder=found.folder)


def _versions() -> dict[str, str]:
    """Versions by library; "none" where one is not installed."""
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            versions[name] = "none"
    return versions


def _node() -> str:
    import ray

    return str(ray.util.get_node_ip_address()) if ray.is_initialized() else socket.gethostname()
