"""Encoders from the hub: every layout loads, and nothing else is fetched; misfits are refused."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from papa.errors import EncoderError
from papa.models.encoder import load_encoder
from papa.models.files import TOKENIZER_FILES
from papa.models.reference import EncoderReference, load_tokenizer
from papa.text.tokens import special_tokens_of
from tests.hub.conftest import Folder, refused, resolved
from tests.hub.encoders import OTHERS, PUBLISHED, write_encoder
from tests.hub.server import Hub, files_in
from tests.models.inputs import some_inputs
from tests.probes.sentences import SIMILAR, dense, mean, original, pairs, sentence_encoder

BERT = "google-bert/bert-base-uncased"
PICKLED = "google/electra-base-discriminator"


def hidden_states(reference: EncoderReference) -> list[Tensor]:
    encoder = load_encoder(reference)
    batch = some_inputs(1, pad=encoder.config.pad_token_id).compact()
    with torch.inference_mode():
        return encoder.token_states(batch)


def saved_plainly(name: str, source: Path, folder: Path, seed: int = 0) -> EncoderReference:
    """The encoder as ``save_pretrained`` writes it: without heads, prefixes and old names."""
    model = write_encoder(name, folder / "published", seed).base_model
    if "v3" in name:
        model = model.half()
    model.save_pretrained(folder / "plain")
    for file in TOKENIZER_FILES:
        if (source / file).is_file():
            shutil.copyfile(source / file, folder / "plain" / file)
    return resolved(folder / "plain")


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_layout_loads(name: str, on_hub: Hub, encoder_folder: Folder, tmp_path: Path) -> None:
    folder = encoder_folder(name)
    commit = on_hub.publish("models", name, folder)
    reference = resolved(name)
    assert (reference.name, reference.revision) == (name, commit)
    assert (reference.layers, reference.heads, reference.width) == (2, 4, 32)
    states = hidden_states(reference)
    framing = special_tokens_of(load_tokenizer(reference))
    assert len({framing.cls, framing.sep, framing.pad, framing.mask}) == 4
    other_weights = {"pytorch_model.bin"} if PUBLISHED[name].safetensors else set()
    assert on_hub.fetched(name) == files_in(folder).keys() - OTHERS - other_weights
    same = hidden_states(saved_plainly(name, folder, tmp_path / "same"))
    torch.testing.assert_close(states, same, atol=1e-5, rtol=0)
    fresh = hidden_states(saved_plainly(name, folder, tmp_path / "other", seed=1))
    assert all((ours - new).abs().max() > 0.1 for ours, new in zip(states, fresh, strict=True))


def test_modules_of_an_encoder_of_the_hub_are_read(on_hub: Hub, tmp_path: Path) -> None:
    folder = sentence_encoder(tmp_path, mean, dense)
    rows = pairs(24)
    on_hub.publish("models", "somebody/dense", folder)
    with pytest.raises(EncoderError, match=r"'somebody/dense'.*Dense"):
        original("somebody/dense", rows, metric=SIMILAR)
    (folder / "modules.json").unlink()
    on_hub.publish("models", "somebody/plain", folder)
    assert abs(original("somebody/plain", rows, metric=SIMILAR)) <= 1


@pytest.fixture
def folder(encoder_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ELECTRA's repository as a local folder; its weights are a pickle."""
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    return shutil.copytree(encoder_folder(PICKLED), tmp_path / "electra")


def weights_of(folder: Path) -> dict[str, Tensor]:
    return torch.load(folder / "pytorch_model.bin", weights_only=True)


def fetched_as(hub: Hub, folder: Path, whole: Path) -> set[str]:
    """The weights that are fetched of a repository, which are those of another folder."""
    hub.publish("models", "lab/shards", folder)
    states = hidden_states(resolved("lab/shards"))
    expected = hidden_states(resolved(whole))
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=0)
    return {name for name in hub.fetched("lab/shards") if name.endswith((".safetensors", ".bin"))}


def test_shards_of_safetensors(on_hub: Hub, tmp_path: Path) -> None:
    """Files with other names are not fetched: other precisions, adapters."""
    model = write_encoder(BERT, tmp_path / "whole").base_model
    without = shutil.ignore_patterns("*.safetensors", "*.bin")
    shards = tmp_path / "shards"
    shutil.copytree(tmp_path / "whole", shards, ignore=without)
    model.save_pretrained(shards, max_shard_size="40KB")
    names = {path.name for path in shards.glob("model-*-of-*.safetensors")}
    assert len(names) > 1
    for name in ("model.fp16.safetensors", "adapter_model.safetensors", "pytorch_model.bin"):
        (shards / name).write_bytes(b"other weights")
    assert fetched_as(on_hub, shards, tmp_path / "whole") == names


def test_shards_of_pickles(on_hub: Hub, folder: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    weights = weights_of(folder)
    shutil.copytree(folder, shards, ignore=shutil.ignore_patterns("*.bin"))
    names = [f"pytorch_model-0000{shard_index}-of-00002.bin" for shard_index in (1, 2)]
    for shard_index, name in enumerate(names):
        torch.save({key: weights[key] for key in sorted(weights)[shard_index::2]}, shards / name)
    assert fetched_as(on_hub, shards, folder) == {*names}
    extra = shutil.copy(shards / names[1], shards / "pytorch_model-00003-of-00003.bin")
    assert "whole or in all its shards" in refused(shards), "whose is the other one?"
    Path(extra).unlink()
    (shards / names[1]).unlink()
    assert "whole or in all its shards" in refused(shards)


class Command:
    """What a pickle can hold and PAPA must not run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


def test_pickles_of_more_than_tensors_are_refused(folder: Path, tmp_path: Path) -> None:
    weights = weights_of(folder)
    torch.save({**weights, "more": Command(tmp_path / "mark")}, folder / "pytorch_model.bin")
    assert "posix.mkdir" in refused(folder)
    assert not (tmp_path / "mark").exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert (tmp_path / "mark").exists(), "the control: the pickle would do it"


WEIGHT = "electra.encoder.layer.1.output.dense.weight"
UNFIT: list[tuple[Any, str]] = [
    (lambda sound: {name: sound[name] for name in sound if name != WEIGHT}, WEIGHT[8:]),
    (lambda sound: {**sound, WEIGHT: torch.zeros(32, 64)}, r"\[32, 64\]"),
    (lambda _: {"gpt.h.0.weight": torch.zeros(2, 2)}, "electra"),
    (lambda sound: sound, ""),
    (b"<html>sign in</html>", "damaged"),
    (b"", "damaged"),
]


@pytest.mark.parametrize("kind", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize(("change", "expected"), UNFIT)
def test_unfit_weights_are_refused(change: Any, expected: str, kind: str, folder: Path) -> None:
    weights = weights_of(folder)
    path = folder / kind
    (folder / "pytorch_model.bin").unlink()
    save = torch.save if kind.endswith("bin") else save_file
    changed = change(weights) if callable(change) else weights
    save(changed, path)
    if not callable(change):
        path.write_bytes(change)
    assert re.search(expected, refused(folder) if expected else resolved(folder).digest)


def test_a_repository_without_weights_lists_what_it_has(on_hub: Hub, folder: Path) -> None:
    (folder / "pytorch_model.bin").unlink()
    on_hub.publish("models", "lab/flax", folder)
    pattern = "no model.safetensors and no pytorch_model.bin.*flax_model.msgpack"
    assert re.search(pattern, refused("lab/flax"))
    assert not on_hub.fetched("lab/flax") & {"flax_model.msgpack", "tf_model.h5", "rust_model.ot"}
