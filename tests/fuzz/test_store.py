"""The store against a dictionary: whatever is written, read, claimed, pruned and damaged, in
whatever order.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from papa.storage.artifacts import opened, published, read_metadata, verify
from papa.storage.metadata import METADATA, sha256_of_json
from papa.study.store import Store, claimed
from tests.fuzz.outcomes import result_or_sentence, times
from tests.fuzz.test_corpora import BITS, damaged
from tests.storage.files import drop, put

STAGES = ("average", "probe")
FILE = "data.json"


class StoreMachine(RuleBasedStateMachine):
    """Steps of two stages are made, read, damaged and removed; ``held`` is what the store must
    hold.

    ``held`` maps (stage, key) to the content, and to None where what lies there was damaged.
    """

    keys: Bundle[tuple[str, str]] = Bundle("keys")
    remote = False

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="papa-fuzz-"))
        self.environment = patch.dict("os.environ", PAPA_CACHE=str(self.folder / "cache"))
        self.environment.start()
        self.store = Store(
            f"memory://{uuid.uuid4().hex[:12]}" if self.remote else self.folder / "store"
        )
        self.store.make()
        self.held: dict[tuple[str, str], dict[str, Any] | None] = {}

    def teardown(self) -> None:
        if hasattr(self, "environment"):
            self.environment.stop()
            shutil.rmtree(self.folder, ignore_errors=True)
            MemoryFileSystem.store.clear()
            MemoryFileSystem.pseudo_dirs[:] = [""]

    @rule(target=keys, stage=st.sampled_from(STAGES), number=st.integers(0, 3))
    def name(self, stage: str, number: int) -> tuple[str, str]:
        return stage, sha256_of_json(number)

    @rule(key=keys, content=st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=3))
    def write(self, key: tuple[str, str], content: dict[str, Any]) -> None:
        """As a step does: under its lock, unless it is there; what is damaged is cleared first."""
        with claimed(self.store, "-".join(key)):
            if self.store.holds(*key):
                return
            if self.store.is_there(*key):
                self.store.discard(*key)
            with published(self.store.folder(*key), {"stage": key[0], "key": key[1]}) as scratch:
                (scratch / FILE).write_text(json.dumps(content))
        self.held[key] = content

    @rule(key=keys, content=st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=3))
    def write_late(self, key: tuple[str, str], content: dict[str, Any]) -> None:
        """Another writer was first: what is in place stays."""
        if key in self.held and self.held[key] is None:
            return
        with published(self.store.folder(*key), {"stage": key[0], "key": key[1]}) as scratch:
            (scratch / FILE).write_text(json.dumps(content))
        self.held.setdefault(key, content)

    @rule(key=keys)
    def read(self, key: tuple[str, str]) -> None:
        address = self.store.folder(*key)

        def content() -> Any:
            verify(address, FILE)
            with opened(address, FILE) as folder:
                return json.loads((folder / FILE).read_text())

        # What was damaged is refused, what nobody damaged is not.
        assert result_or_sentence(content) == self.held.get(key)

    @rule(key=keys)
    def fail_to_write(self, key: tuple[str, str]) -> None:
        with suppress(RuntimeError), published(self.store.folder(*key), {}) as scratch:
            (scratch / FILE).write_text("half")
            raise RuntimeError

    @rule(key=keys)
    def remove(self, key: tuple[str, str]) -> None:
        self.store.discard(*key)
        self.held.pop(key, None)

    @rule(
        key=keys,
        bits=st.lists(BITS, min_size=1, max_size=2),
        cut=st.sampled_from([1.0, 0.5]),
        data=st.booleans(),
    )
    def damage(
        self, key: tuple[str, str], bits: list[tuple[float, int]], cut: float, data: bool
    ) -> None:
        if self.held.get(key) is None:
            return
        address = self.store.folder(*key)
        name = f"{read_metadata(address)['digest']}/{FILE}" if data else METADATA
        before = Store(address).files.read(name)
        assert before is not None
        after = damaged(before, bits, cut)
        if after != before:
            put(address, name, after)
            self.held[key] = None

    @rule(key=keys)
    def lose_the_metadata(self, key: tuple[str, str]) -> None:
        if key in self.held:
            drop(self.store.folder(*key), METADATA)
            del self.held[key]

    @rule(key=keys, other=keys)
    def swap(self, key: tuple[str, str], other: tuple[str, str]) -> None:
        """A sound artifact in the place of another is another's."""
        if (
            self.remote
            or key == other
            or self.held.get(key) is None
            or self.held.get(other) is None
        ):
            return
        here, there = Path(self.store.folder(*key)), Path(self.store.folder(*other))
        shutil.rmtree(there)
        shutil.copytree(here, there)
        assert self.store.damage(*other) is not None
        self.store.discard(*other)
        del self.held[other]

    @invariant()
    def knows_what_it_holds(self) -> None:
        if not hasattr(self, "store"):
            return
        for stage in STAGES:
            there = {document["key"] for document in self.store.metadata(stage)}
            sound = {
                key
                for (of, key), content in self.held.items()
                if of == stage and content is not None
            }
            assert sound <= there <= {key for of, key in self.held if of == stage}
        for key, content in self.held.items():
            # Digests of data are checked when they are read.
            assert content is None or self.store.damage(*key) is None
            assert self.store.is_there(*key)


class RemoteMachine(StoreMachine):
    remote = True


TestFolder = StoreMachine.TestCase
TestFolder.settings = times(0.6)
TestMemory = RemoteMachine.TestCase
TestMemory.settings = times(0.4)
