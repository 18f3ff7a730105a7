"""Files that tests of stores write, through the store and past it."""

from __future__ import annotations

from pathlib import Path

from papa.storage.artifacts import published
from papa.storage.cache import cache_folder
from papa.storage.files import Files, filesystem

MEGABYTE = 2**20


def publish(address: str, text: str = "data") -> None:
    with published(address, {"stage": "test"}) as scratch:
        (scratch / "inner").mkdir()
        (scratch / "inner" / "file.txt").write_text(text)


def put(address: str, name: str, data: bytes) -> None:
    """Write a file past the store, as somebody else would."""
    files, root = filesystem(address)
    files.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
    files.pipe_file(f"{root}/{name}", data)


def drop(address: str, name: str) -> None:
    """Remove a file past the store."""
    files, root = filesystem(address)
    files.rm_file(f"{root}/{name}")


def names(address: str) -> list[str]:
    return sorted(file.path for file in Files(address).find())


def in_cache() -> dict[str, str]:
    """What this machine's cache holds."""
    return {str(path): path.read_text() for path in cache_folder().rglob("*") if path.is_file()}


def tensors(folder: Path, size: int) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(size // 4)}, folder / "a.safetensors")


def table(folder: Path, size: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    pa.parquet.write_table(
        pa.table({"a": range(size // 8)}), folder / "a.parquet", use_dictionary=False,
        compression="none",
    )  # fmt: skip
