"""What holds of artifacts wherever they lie: a class of tests for each store inherits it."""

from __future__ import annotations

import json
import subprocess
import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem
from safetensors.torch import save_file

from papa.errors import ArtifactError
from papa.files import cache_folder
from papa.storage.artifacts import (
    METADATA,
    ArtifactReference,
    digest_of,
    is_complete,
    metadata_below,
    published,
    read_metadata,
    remove,
    signed,
    verified,
)
from papa.storage.files import Address, Files

NAMES = [
    "../escaped.txt", "inner/../../escaped.txt", "../outside/secret.txt", "{outside}/escaped.txt",
    "//escaped.txt", "./file.txt", "inner/", "", "..\\escaped.txt", "C:escaped.txt", "file\0.txt",
    "file\x1b[2J.txt", "metadata.json",
]  # fmt: skip
NO_METADATA = {b"[]": "list indices", b"{}": "'data'", b"{": "Expecting"}
CHANGES: list[tuple[dict[str, object], str]] = [
    ({"files": ["file.txt"]}, "'list' object is not a mapping"),
    ({"data": "../../../escaped"}, "is no plain relative path"),
    ({"digest": "0" * 64}, "its digest does not match"),
    ({"stage": "tesu"}, "its digest does not match"),
    ({"more": 1}, "its digest does not match"),
]
READERS: tuple[Callable[[str], object], ...] = (verified, read_metadata)
_remove = Files.remove


def killed(files: Files, name: str = "") -> None:
    _remove(files, name)
    raise KeyboardInterrupt


def tensors(folder: Path, size: int) -> None:
    save_file({"a": torch.zeros(size // 4)}, folder / "a.safetensors")


def table(folder: Path, size: int) -> None:
    values = pa.table({"a": range(size // 8)})
    plain = {"use_dictionary": False}
    pa.parquet.write_table(values, folder / "a.parquet", compression="none", **plain)


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
            assert not is_complete(f"{address}/a")
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

    def test_what_replaces_an_artifact_is_there_before_the_other_is_gone(
        self, address: str
    ) -> None:
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
        assert not is_complete(f"{address}/a")
        assert metadata_below(address) == {}
        for read in READERS:
            with pytest.raises(
                ArtifactError, match=rf"{address}/a holds no complete artifact .*run again"
            ):
                read(f"{address}/a")
        publish(f"{address}/a")
        assert content(f"{address}/a") == "data"

    def test_damage_is_found_by_who_reads(self, address: str) -> None:
        publish(f"{address}/a")
        file = data(f"{address}/a")
        advice = rf".*delete {address}/a and run again"
        for damage, sentence in (
            (lambda: put(f"{address}/a", file, b"dat4"), rf"{address}/a/inner/file.txt is damaged"),
            (
                lambda: Files(f"{address}/a").remove(file),
                rf"{address}/a.* is damaged .*no such file",
            ),
        ):
            damage()
            with pytest.raises(ArtifactError, match=sentence + advice):
                verified(f"{address}/a")

    @pytest.mark.parametrize("linked", ["", "inner", "inner/file.txt"])
    def test_a_link_inside_an_artifact_is_refused(
        self, address: str, tmp_path: Path, linked: str
    ) -> None:
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
        with pytest.raises(ArtifactError, match=rf"{METADATA} names no scores.json: delete"):
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
        with pytest.raises(ArtifactError, match="replaced by another artifact meanwhile"):
            verified(first_reference)

    def test_a_write_whose_answer_was_lost_keeps_its_data(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A client that asks again is told that the metadata are there: its own."""
        write = Files.write
        monkeypatch.setattr(Files, "write", lambda *arguments: write(*arguments) and False)
        publish(f"{address}/a")
        assert content(f"{address}/a") == "data"

    def test_removed_is_gone_also_where_who_removes_is_killed(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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
        assert not is_complete(f"{address}/a")
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
        sentence = r"is no plain relative path inside the artifact.*delete"
        (secret := tmp_path / "outside" / "secret.txt").parent.mkdir()
        secret.write_text(SECRET)
        for name, evil in product(NAMES, (b"evil", SECRET.encode())):
            self.plant(f"{address}/a", name.format(outside=secret.parent), evil)
            for read in READERS:
                with pytest.raises(ArtifactError, match=sentence) as raised:
                    read(f"{address}/a")
                assert len(str(raised.value).splitlines()) == 1
            assert metadata_below(address) == {}, name
            assert not in_cache(), name
        assert {path: path.read_text() for path in secret.parent.iterdir()} == {secret: SECRET}
        assert not list(tmp_path.rglob("*escaped*"))
        self.plant(f"{address}/a", "inner/file.txt", b"evil")
        put(f"{address}/a", data(f"{address}/a"), b"evil")
        for read in READERS:
            read(f"{address}/a")
        assert content(f"{address}/a") == "evil"

    def test_what_is_no_metadata_is_one_sentence(self, address: str) -> None:
        sound = json.loads(document("file.txt", b"data"))
        changed = {json.dumps({**sound, **change}).encode(): fault for change, fault in CHANGES}
        for content, fault in {**NO_METADATA, **changed}.items():
            put(f"{address}/a", METADATA, content)
            for read in READERS:
                sentence = rf"a/{METADATA} is damaged, or of .*\(.*{fault}"
                with pytest.raises(ArtifactError, match=sentence):
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
        sentence = rf"the disk under {disk}/.* is full: free some space and run again"
        with (
            pytest.raises(ArtifactError, match=sentence),
            published(f"{address}/second", {}) as folder,
        ):
            write(folder, 5 * MEGABYTE)
        assert names(address) == before
        assert not folder.exists()
        with published(f"{address}/second", {}) as folder:
            write(folder, MEGABYTE)
        assert is_complete(f"{address}/first")
        assert is_complete(f"{address}/second")
        before = names(address)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        sentence = "is read-only"
        try:
            with pytest.raises(ArtifactError, match=sentence):
                publish(f"{address}/third")
        finally:
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert names(address) == before
        publish(f"{address}/third")


MEGABYTE = 2**20
SECRET = "what lies outside"


def publish(address: str, text: str = "data") -> None:
    with published(address, {"stage": "test"}) as scratch:
        (scratch / "inner").mkdir()
        (scratch / "inner" / "file.txt").write_text(text)


def put(address: str, name: str, data: bytes) -> None:
    with Files(address).used(name) as (files, path):
        files = files or LocalFileSystem()
        files.makedirs(path.rpartition("/")[0], exist_ok=True)
        files.pipe_file(path, data)


DATA = "0123456789abcdef" * 2


def document(name: str, content: bytes) -> bytes:
    """Metadata that fit the data in every respect, whatever the file's name is."""
    files = {name: sha256(content).hexdigest()}
    return json.dumps(signed({"stage": "test", "data": DATA, "files": files})).encode()


def data(address: str, name: str = "inner/file.txt") -> str:
    return f"{read_metadata(address)['data']}/{name}"


def reference(address: Address) -> ArtifactReference:
    return ArtifactReference(str(address), digest_of(read_metadata(address)))


def names(address: str) -> list[str]:
    return sorted(Files(address).find())


def content(address: str) -> str:
    return (verified(address) / "inner" / "file.txt").read_text()


def in_cache() -> dict[str, str]:
    return {str(path): path.read_text() for path in cache_folder().rglob("*") if path.is_file()}
