"""Temporary folders: their owner's alone, and removed by the next command."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from papa.temporary import remove_abandoned, remove_own_folders, temporary_folder

DYING = """
import os
from papa.temporary import temporary_folder
with temporary_folder("test") as folder:
    (folder / "users.db").touch()
    print(folder, flush=True)
    os._exit(9)
"""


def abandoned() -> Path:
    done = subprocess.run([sys.executable, "-c", DYING], stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


@pytest.fixture
def link_path() -> Iterator[Path]:
    """A path beside other commands' folders, at which a test leaves nothing."""
    with temporary_folder("test") as folder:
        path = folder.with_name(f"papa-test-{uuid.uuid4().hex}")
    yield path
    path.unlink(missing_ok=True)


def test_a_folder_is_its_owners_alone() -> None:
    with temporary_folder("test") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.name.startswith("papa-test-")
        (folder / "file").touch()
    assert not folder.exists()


def test_it_is_gone_from_a_process_that_ends_without_leaving_its_block() -> None:
    with temporary_folder("test") as folder:
        remove_own_folders()
        assert not folder.exists()


@pytest.mark.server
def test_the_next_command_removes_what_a_dead_one_left() -> None:
    left = abandoned()
    assert (left / "users.db").is_file()
    with temporary_folder("test") as living:
        assert not left.exists()
        remove_abandoned()
        assert living.is_dir()


@pytest.mark.server
def test_a_link_is_not_followed(link_path: Path, tmp_path: Path) -> None:
    abandoned().rename(tmp_path / "elsewhere")
    link_path.symlink_to(tmp_path / "elsewhere")
    remove_abandoned()
    assert (tmp_path / "elsewhere" / "users.db").is_file()
    assert link_path.is_symlink()


@pytest.mark.server
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder to another account")
def test_a_folder_of_another_account_stays() -> None:
    left = abandoned()
    os.chown(left, 65534, 65534)
    remove_abandoned()
    assert left.is_dir()
    os.chown(left, 0, 0)
    remove_abandoned()
    assert not left.exists()
