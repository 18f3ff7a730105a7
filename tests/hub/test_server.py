"""The hub on loopback answers huggingface_hub and datasets as the public one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import HfApi, HfFileSystem, constants, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tests.hub.server import TOKEN, Hub

PARQUET = "refs/convert/parquet"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A commit with small and large files, one in a folder."""
    folder = tmp_path / "commit"
    (folder / "data").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "data" / "weights.bin").write_bytes(bytes(range(256)) * 400)
    return folder


def api(token: str | bool = False) -> HfApi:
    return HfApi(token=token)


def test_revisions_are_commits_and_branches_move(on_hub: Hub, folder: Path, tmp_path: Path) -> None:
    first = on_hub.publish("models", "lab/one", folder)
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "config.json").write_text("{ }")
    assert api().model_info("lab/one").sha == first
    second = on_hub.publish("models", "lab/one", newer)
    assert api().model_info("lab/one").sha == second != first
    assert api().model_info("lab/one", revision=first).sha == first
    assert snapshot_download("lab/one").endswith(second)
    assert (Path(snapshot_download("lab/one", revision=first)) / "data" / "weights.bin").is_file()
    with pytest.raises(RevisionNotFoundError):
        api().model_info("lab/one", revision="v9")


@pytest.mark.parametrize("recursive", [True, False])
@pytest.mark.parametrize("revision", [PARQUET, "main"])
def test_trees_of_branches_with_slashes(
    on_hub: Hub, folder: Path, revision: str, recursive: bool
) -> None:
    commit = on_hub.publish("datasets", "lab/rows", folder, branch=revision)
    assert api().dataset_info("lab/rows", revision=revision).sha == commit
    tree = api().list_repo_tree(
        "lab/rows", revision=revision, repo_type="dataset", recursive=recursive, expand=True
    )
    assert {entry.path for entry in tree} == {"config.json", "data"} | (
        {"data/weights.bin"} if recursive else set()
    )
    (known,) = api().get_paths_info(
        "lab/rows", ["data/weights.bin", "no"], revision=revision, repo_type="dataset"
    )
    assert known.size == 102_400
    with pytest.raises(EntryNotFoundError):
        list(api().list_repo_tree("lab/rows", "nowhere", revision=revision, repo_type="dataset"))
    file = HfFileSystem(endpoint=on_hub.address, token=False, skip_instance_cache=True)
    path = f"datasets/lab/rows@{revision.replace('/', '%2F')}/data/weights.bin"
    assert file.cat_file(path, start=255, end=258) == b"\xff\x00\x01"


def test_a_cut_download_goes_on(on_hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        constants, "DOWNLOAD_CHUNK_SIZE", 10_000
    )  # What is lost at most; 10 MB by default.
    on_hub.publish("models", "lab/one", folder)
    on_hub.cut("weights.bin", after=70_000)
    found = Path(snapshot_download("lab/one")) / "data" / "weights.bin"
    assert found.read_bytes() == (folder / "data" / "weights.bin").read_bytes()
    ranges = [request.range for request in on_hub.requests if request.to_storage]
    assert ranges[0] is None
    assert ranges[1:] == ["bytes=70000-"]


def test_private_gated_and_missing(on_hub: Hub, folder: Path) -> None:
    on_hub.publish("models", "lab/private", folder, access="private")
    on_hub.publish("models", "lab/gated", folder, access="gated")
    for name in ("lab/private", "lab/missing"):
        with pytest.raises(RepositoryNotFoundError):
            api().model_info(name)
    assert api().model_info("lab/gated").gated == "manual"
    with pytest.raises(GatedRepoError):
        snapshot_download("lab/gated", token=False)
    with pytest.raises(HfHubHTTPError, match="401"):
        api("hf_another").model_info("lab/gated")
    for name in ("lab/private", "lab/gated"):
        snapshot_download(name, token=TOKEN)
    on_hub.kept_out |= {"lab/private", "lab/gated"}
    with pytest.raises(RepositoryNotFoundError):
        api(TOKEN).model_info("lab/private")
    with pytest.raises(GatedRepoError):
        snapshot_download("lab/gated", token=TOKEN, cache_dir=folder / "no cache")
    assert TOKEN in {request.token for request in on_hub.requests if not request.to_storage}
    assert {request.token for request in on_hub.requests if request.to_storage} == {None}


def test_gone_and_back(on_hub: Hub, folder: Path) -> None:
    commit = on_hub.publish("models", "lab/one", folder)
    address = on_hub.address
    on_hub.stop()
    with pytest.raises(Exception, match="refused"):
        api().model_info("lab/one")
    on_hub.start()
    assert (on_hub.address, api().model_info("lab/one").sha) == (address, commit)
