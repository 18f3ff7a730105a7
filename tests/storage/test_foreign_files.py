"""A corpus whose description names files that are none of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from papa.corpora.corpus import CORPUS, TOKENISE_VERSION, load_corpus
from papa.corpora.ragged import PackedTokens
from papa.corpora.split import write_shard
from papa.errors import ArtifactError
from papa.storage.metadata import sha256_of_file, sha256_of_json, signed


@pytest.mark.parametrize("file", ["../outside/secret.txt", "train-00001.arrow"])
def test_a_corpus_reads_none_but_its_own_files(tmp_path: Path, outside: Path, file: str) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    one, two = np.arange(1), np.array([2])
    tokens = PackedTokens(
        input_ids=np.array([2, 3]),
        slot_ids=np.array([0, 7]),
        token_type_ids=np.zeros(2, dtype=int),
        lengths=two,
        first_lengths=one,
    )
    write_shard(folder / "train-00000.arrow", tokens, np.zeros(1, dtype=int), label_per_token=False)
    (folder / "train-00001.arrow").write_bytes(b"rows that no digest covers")

    def name_shards(*names: str, covered: tuple[str, ...] = ("train-00000.arrow", CORPUS)) -> None:
        shards = {"train": [{"file": name, "rows": 1} for name in names], "validation": []}
        held = {"kind": "text", "slots": 8, "label_names": None, "shards": shards}
        (folder / CORPUS).write_text(json.dumps(held))
        files = {name: sha256_of_file(folder / name) for name in covered}
        metadata = {
            "stage": "tokenise",
            "version": TOKENISE_VERSION,
            "files": files,
            "digest": sha256_of_json(files),
        }
        (folder / "metadata.json").write_text(json.dumps(signed(metadata)))

    name_shards("train-00000.arrow")
    assert load_corpus(folder).split("train").shards == (folder / "train-00000.arrow",)
    name_shards("train-00000.arrow", file)
    with pytest.raises(ArtifactError, match=f"names a shard '{file}' that is none of its files"):
        load_corpus(folder)
    name_shards("train-00000.arrow", covered=("train-00000.arrow",))
    with pytest.raises(ArtifactError, match=rf"holds no {CORPUS} that its digests cover"):
        load_corpus(folder)
