"""Encoders from the hub: every published layout loads, with its own weights, and nothing else is
fetched.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from papa.corpora.tokens import special_tokens_of
from papa.encoders.encoder import load_encoder
from papa.encoders.files import TOKENIZER_FILES
from papa.encoders.reference import EncoderReference, load_tokenizer, resolve_encoder
from papa.errors import EncoderError
from papa.spec import EncoderSpec
from tests.encoders.inputs import some_inputs
from tests.hub.conftest import Folder
from tests.hub.encoders import OTHERS, PUBLISHED, SENTENCES, write_encoder
from tests.hub.server import Hub, files_in
from tests.probes.sentences import SIMILAR, dense, mean, original, pairs, sentence_encoder


def hidden_states(reference: EncoderReference) -> list[Tensor]:
    """Of inputs that do not depend on the tokenizer."""
    encoder = load_encoder(reference)
    batch = some_inputs(1, pad=encoder.config.pad_token_id).compact()
    with torch.inference_mode():
        return encoder.token_states(batch)


def saved_plainly(name: str, source: Path, folder: Path, seed: int = 0) -> EncoderReference:
    """The encoder of a repository as ``save_pretrained`` writes it: without heads, prefixes and old
    names.
    """
    model = write_encoder(name, folder / "published", seed).base_model
    if "v3" in name:
        model = model.half()
    model.save_pretrained(folder / "plain")
    for file in TOKENIZER_FILES:
        if (source / file).is_file():
            shutil.copyfile(source / file, folder / "plain" / file)
    return resolve_encoder(EncoderSpec(name=str(folder / "plain")))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_layouts_load(
    name: str, on_hub: Hub, encoder_folder: Folder, tmp_path: Path
) -> None:
    folder = encoder_folder(name)
    commit = on_hub.publish("models", name, folder)
    reference = resolve_encoder(EncoderSpec(name=name))
    assert (reference.name, reference.revision) == (name, commit)
    assert (reference.layers, reference.heads, reference.width) == (2, 4, 32)
    found = hidden_states(reference)
    framing = special_tokens_of(load_tokenizer(reference))
    assert len({framing.cls, framing.sep, framing.pad, framing.mask}) == 4
    other_weights = {"pytorch_model.bin"} if PUBLISHED[name].safetensors else set()
    assert on_hub.fetched(name) == files_in(folder).keys() - OTHERS - other_weights
    same = hidden_states(saved_plainly(name, folder, tmp_path / "same"))
    assert all(torch.equal(ours, expected) for ours, expected in zip(found, same, strict=True))
    other = hidden_states(saved_plainly(name, folder, tmp_path / "other", seed=1))
    assert all((ours - others).abs().max() > 0.1 for ours, others in zip(found, other, strict=True))


@pytest.mark.parametrize("name", ["microsoft/deberta-v3-base", "FacebookAI/xlm-roberta-base"])
def test_sentencepiece_models_read_alone(
    name: str, on_hub: Hub, encoder_folder: Folder, tmp_path: Path
) -> None:
    """As in revisions without ``tokenizer.json``: the same tokens."""
    folder = shutil.copytree(encoder_folder(name), tmp_path / "repository")
    (folder / "tokenizer.json").unlink(missing_ok=True)
    on_hub.publish("models", name, folder)
    tokenizer = load_tokenizer(resolve_encoder(EncoderSpec(name=name)))
    (model,) = folder.glob("*.model")
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for sentence in SENTENCES:
        assert tokenizer.tokenize(sentence) == pieces.encode(sentence, out_type=str)
    assert any(len(pieces.encode(sentence)) > len(sentence.split()) for sentence in SENTENCES)


def test_modules_of_an_encoder_of_the_hub_are_read(on_hub: Hub, tmp_path: Path) -> None:
    folder, rows = sentence_encoder(tmp_path, mean, dense), pairs(24)
    on_hub.publish("models", "somebody/dense", folder)
    with pytest.raises(EncoderError, match=r"'somebody/dense'.*Dense"):
        original("somebody/dense", rows, **SIMILAR)
    (folder / "modules.json").unlink()
    on_hub.publish("models", "somebody/plain", folder)
    assert abs(original("somebody/plain", rows, **SIMILAR)) <= 1
