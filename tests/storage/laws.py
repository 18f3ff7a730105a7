"""What holds of artifacts wherever they lie: a class of tests for each store inherits it."""

import json
import subprocess
import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file

from papa.errors import ArtifactError
from papa.storage.artifacts import (
    METADATA,
    has_metadata,
    metadata_below,
    published,
    read_metadata,
    remove,
    verified,
)
from papa.storage.files import Files
from tests.storage.artifacts import (
    content,
    data,
    document,
    in_cache,
    names,
    publish,
    put,
    reference,
)

MEGABYTE = 2**20
SECRET = "what lies outside"
NAMES = [
    "../escaped.txt", "inner/../../escaped.txt", "../outside/secret.txt", "{outside}/escaped.txt",
    "//escaped.txt", "./file.txt", "inner/", "", "..\\escaped.txt", "C:escaped.txt", "file\0.txt",
    "file\x1b[2J.txt", "metadata.json",
]  # fmt: skip
CHANGES: list[dict[str, object]] = [
    {"files": ["file.txt"]},
    {"data": "../../../escaped"},
    {"digest": "0" * 64},
    {"stage": "tesu"},
]
SOUND = json.loads(document("file.txt", b"data"))
NO_METADATA = [b"[]", b"{", *(json.dumps(SOUND | change).encode() for change in CHANGES)]
READERS: tuple[Callable[[str], object], ...] = (verified, read_metadata)
_remove = Files.remove


def killed(files: Files, name: str = "") -> None:
    _remove(files, name)
    raise KeyboardInterrupt


def tensors(folder: Path, size: int) -> None:
    save_file({"a": torch.zeros(size // 4)}, folder / "a.safetensors")


def table(folder: Path, size: int) -> None:
    values = pa.table({"a": range(size // 8)})
    pa.parquet.write_table(values, folder / "a.parquet", compression="none", use_dictionary=False)


class StoreLaws:
    """A kind of store gives ``address``: an address with nothing below it, and a cache."""

    @abstractmethod
    def address_on(self, disk: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> str:
        """An address whose artifacts are written on this disk first."""

    def plant(self, address: str, name: str, content: bytes) -> None:
        put(address, METADATA, document(name, content))

    def test_an_artifact_is_published_whole_with_digests_or_not_at_all(self, address: str) -> None:
        with suppress(RuntimeError), published(f"{address}/a", {}) as scratch:
            (scratch / "file.txt").write_text("half")
            assert not has_metadata(f"{address}/a")
            assert metadata_below(address) == {}
            raise RuntimeError
        assert names(address) == []
        assert not scratch.exists()
        assert not in_cache()
        publish(f"{address}/a")
        assert read_metadata(f"{address}/a")["stage"] == "test"
        assert list(read_metadata(f"{address}/a")["files"]) == ["inner/file.txt"]
        assert names(address) == sorted([f"a/{data(f'{address}/a')}", f"a/{METADATA}"])
        assert content(f"{address}/a") == "data"

    def test_only_the_first_to_publish_stays(self, address: str) -> None:
        with published(f"{address}/a", {"stage": "late"}) as scratch:
            (scratch / "file.txt").write_text("late")
            publish(f"{address}/a", "early")
        assert names(f"{address}/a") == sorted([data(f"{address}/a"), METADATA])
        assert content(f"{address}/a") == "early"
        assert not scratch.exists()

    def test_a_replaced_artifact_is_readable_throughout(self, address: str) -> None:
        publish(f"{address}/a", "early")
        before = data(f"{address}/a")
        with published(f"{address}/a", {"stage": "late"}, replace=True) as scratch:
            (scratch / "file.txt").write_text("late")
            assert content(f"{address}/a") == "early"
        assert (verified(f"{address}/a") / "file.txt").read_text() == "late"
        assert read_metadata(f"{address}/a")["stage"] == "late"
        assert before in names(f"{address}/a"), "a reader may be at it"

    def test_of_many_writers_exactly_one_wins(self, address: str) -> None:
        def write(number: int) -> None:
            with published(f"{address}/a", {"writer": number}) as scratch:
                for name in ("one", "two", "three"):
                    (scratch / name).write_text(f"{number}" * 1000)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(write, range(8)))
        winner = read_metadata(f"{address}/a")["writer"]
        texts = {path.read_text() for path in verified(f"{address}/a").iterdir()}
        assert texts == {f"{winner}" * 1000}
        assert len(names(address)) == 4, "the others withdrew their data"

    def test_data_without_metadata_are_no_artifact(self, address: str) -> None:
        """Nor a hindrance: their writer was killed."""
        put(f"{address}/a", "0123/inner/file.txt", b"half")
        assert not has_metadata(f"{address}/a")
        assert metadata_below(address) == {}
        for read in READERS:
            with pytest.raises(ArtifactError, match=f"{address}/a"):
                read(f"{address}/a")
        publish(f"{address}/a")
        assert content(f"{address}/a") == "data"

    def test_damage_is_found_by_who_reads(self, address: str) -> None:
        publish(f"{address}/a")
        file = data(f"{address}/a")
        put(f"{address}/a", file, b"dat4")
        with pytest.raises(ArtifactError, match=f"{address}/a/inner/file.txt"):
            verified(f"{address}/a")
        Files(f"{address}/a").remove(file)
        with pytest.raises(ArtifactError, match=f"{address}/a"):
            verified(f"{address}/a")

    @pytest.mark.parametrize("linked", ["", "inner", "inner/file.txt"])
    def test_a_link_inside_is_refused(self, address: str, tmp_path: Path, linked: str) -> None:
        """Also one to the very same bytes."""
        publish(f"{address}/a")
        inside = verified(f"{address}/a") / linked
        inside.rename(tmp_path / "outside")
        inside.symlink_to(tmp_path / "outside")
        with pytest.raises(ArtifactError, match=f"{inside} is a link"):
            verified(f"{address}/a")

    def test_a_file_that_no_digest_covers_is_not_read(self, address: str) -> None:
        publish(f"{address}/a")
        put(f"{address}/a", data(f"{address}/a", "scores.json"), b"{}")
        assert verified(f"{address}/a", "inner/file.txt")
        with pytest.raises(ArtifactError, match=r"scores\.json"):
            verified(f"{address}/a", "scores.json")

    def test_metadata_of_many(self, address: str) -> None:
        for name in ("b", "a", "deeper/c", ".a.1.0123abcd"):
            publish(f"{address}/stage/{name}")
        put(f"{address}/stage/damaged", METADATA, b"{")
        assert {*metadata_below(f"{address}/stage")} == {"a", "b"}
        assert metadata_below(f"{address}/none") == {}

    def test_made_again_meanwhile_is_said(self, address: str) -> None:
        publish(f"{address}/a", "one")
        first_reference = reference(f"{address}/a")
        for text in ("one", "two"):
            remove(f"{address}/a")
            publish(f"{address}/a", text)
            if text == "one":
                assert verified(first_reference), "the same bits are the same artifact"
        with pytest.raises(ArtifactError, match=f"{address}/a"):
            verified(first_reference)

    def test_a_lost_answer_keeps_data(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A client that asks again is told that the metadata are there: its own."""
        write = Files.write

        def write_without_answer(*arguments: Any, **settings: Any) -> bool:
            write(*arguments, **settings)
            return False

        monkeypatch.setattr(Files, "write", write_without_answer)
        publish(f"{address}/a")
        assert content(f"{address}/a") == "data"

    def test_removed_is_gone(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("a", "ab", "group/c"):
            publish(f"{address}/{name}")
            assert content(f"{address}/{name}") == "data"
        for name in ("a", "a", "group"):
            remove(f"{address}/{name}")
        assert {name.partition("/")[0] for name in names(address)} == {"ab"}
        publish(f"{address}/a", "again")
        assert content(f"{address}/a") == "again"
        with monkeypatch.context() as patch:
            patch.setattr(Files, "remove", killed)
            with pytest.raises(KeyboardInterrupt):
                remove(f"{address}/a")
        assert names(f"{address}/a"), "its data are left"
        assert not has_metadata(f"{address}/a")
        publish(f"{address}/a", "once more")
        assert content(f"{address}/a") == "once more"

    def test_small_files_that_are_written_are_listed(self, address: str) -> None:
        store = Files(address)
        begun = time.time()
        assert store.read("runs/a/notes") is None
        assert store.write("runs/a/notes", b"three")
        assert not store.write("runs/a/notes", b"four")
        assert store.read("runs/a/notes") == b"three"
        assert store.write("runs/b", b"1")
        put(address, "runsb/three", b"")
        files = store.find("runs")
        assert {name: size for name, (size, _) in files.items()} == {"a/notes": 5, "b": 1}
        # A store may keep whole seconds.
        assert all(begun - 1 <= moment <= time.time() + 1 for _, moment in files.values())
        assert store.find("none") == Files(f"{address}/none").find() == {}
        for _ in range(2):
            store.remove("runs/b")
        assert names(address) == ["runs/a/notes", "runsb/three"]

    def test_a_hostile_name_leads_nowhere(self, address: str, tmp_path: Path) -> None:
        """Nor to data whose digest is known; the control: with a plain name they are read."""
        secret = tmp_path / "outside" / "secret.txt"
        secret.parent.mkdir()
        secret.write_text(SECRET)
        for name, evil in product(NAMES, (b"evil", SECRET.encode())):
            self.plant(f"{address}/a", name.format(outside=secret.parent), evil)
            for read in READERS:
                with pytest.raises(ArtifactError, match="relative path"):
                    read(f"{address}/a")
            assert metadata_below(address) == {}, name
            assert not in_cache(), name
        assert {path: path.read_text() for path in secret.parent.iterdir()} == {secret: SECRET}
        assert not list(tmp_path.rglob("*escaped*"))
        self.plant(f"{address}/a", "inner/file.txt", b"evil")
        put(f"{address}/a", data(f"{address}/a"), b"evil")
        for read in READERS:
            read(f"{address}/a")
        assert content(f"{address}/a") == "evil"

    @pytest.mark.parametrize("metadata", NO_METADATA)
    @pytest.mark.parametrize("read", READERS)
    def test_what_is_no_metadata_is_refused(
        self, address: str, metadata: bytes, read: Callable[[str], object]
    ) -> None:
        put(f"{address}/a", METADATA, metadata)
        with pytest.raises(ArtifactError, match=f"a/{METADATA}"):
            read(f"{address}/a")
        assert not in_cache()

    @pytest.mark.server
    @pytest.mark.parametrize("write", [tensors, table])
    def test_an_artifact_on_a_disk_that_takes_no_data(
        self, write: Callable[[Path, int], None], disk: Path, address: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        address = self.address_on(disk, address, monkeypatch)
        with published(f"{address}/first", {}) as folder:
            write(folder, 2 * MEGABYTE)
        before = names(address)
        with (
            pytest.raises(ArtifactError, match=f"{disk}/.* is full"),
            published(f"{address}/second", {}) as folder,
        ):
            write(folder, 5 * MEGABYTE)
        assert names(address) == before
        assert not folder.exists()
        with published(f"{address}/second", {}) as folder:
            write(folder, MEGABYTE)
        assert has_metadata(f"{address}/first")
        assert has_metadata(f"{address}/second")
        before = names(address)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        try:
            with pytest.raises(ArtifactError, match="read-only"):
                publish(f"{address}/third")
        finally:
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert names(address) == before
        publish(f"{address}/third")
