"""Encoder folders whose files somebody damaged or rewrote: an encoder that is what its files say,
or one sentence.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from papa.corpora.tokens import special_tokens_of, tokens_of_texts
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.reference import EncoderReference, load_tokenizer, resolve_encoder
from papa.errors import EncoderError
from papa.spec import EncoderSpec
from tests.encoders.models import random_model
from tests.fuzz.outcomes import result_or_sentence, times
from tests.fuzz.test_corpora import BITS, damaged
from tests.fuzz.values import ODD_SCALARS, changed

FAMILIES = ["bert", "roberta", "deberta_v3", "modernbert", "albert"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "facts", "dolls", "verbs", "##s", "a"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each family, with random weights and a tokenizer of ten words."""
    from transformers import ElectraTokenizer

    place = tmp_path_factory.mktemp("sound")
    for family in FAMILIES:
        random_model(family).float().save_pretrained(place / family)
        vocabulary = {word: number for number, word in enumerate(WORDS)}
        ElectraTokenizer(vocab=vocabulary).save_pretrained(place / family)
    return place


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "encoder"


def copied(sound: Path, family: str, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound / family, folder)
    return folder


def opened(folder: Path) -> tuple[EncoderReference, Encoder, Any] | None:
    """The encoder and its tokenizer, as a study opens them."""

    def read() -> tuple[EncoderReference, Encoder, Any]:
        reference = resolve_encoder(EncoderSpec(name=str(folder)))
        tokenizer = load_tokenizer(reference)
        special_tokens = special_tokens_of(tokenizer)
        tokens_of_texts(tokenizer, special_tokens, ["a doll", "facts and verbs", ""])
        return reference, load_encoder(reference), tokenizer

    return result_or_sentence(read, str(folder))


def test_sound_folders_are_opened(sound: Path, folder: Path) -> None:
    for family in FAMILIES:
        found = opened(copied(sound, family, folder))
        assert found is not None
        assert (found[0].layers, found[0].heads, found[0].width) == (3, 4, 32)


KEYS = st.sampled_from(
    [
        "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
        "intermediate_size", "pad_token_id", "max_position_embeddings", "type_vocab_size",
        "model_type", "hidden_act", "layer_norm_eps", "is_decoder", "initializer_range",
        "embedding_size", "architectures", "rope_parameters", "layer_types",
        "chunk_size_feed_forward", "torch_dtype", "dtype", "id2label",
    ]
)  # fmt: skip
NEAR = st.one_of(
    ODD_SCALARS,
    st.sampled_from([0, 1, 2, 3, 5, 31, 33, 64, 10**6, "gelu", "float16", "bert", [], {}]),
)


@times(1.6)
@given(st.sampled_from(FAMILIES), st.dictionaries(KEYS, NEAR, min_size=1, max_size=2))
@example("bert", {"intermediate_size": -1})
@example("bert", {"num_attention_heads": True})
@example("bert", {"id2label": 7})
@example("modernbert", {"layer_types": ["x"]})
@example("roberta", {"pad_token_id": None})
def test_changed_configurations(
    sound: Path, folder: Path, family: str, changes: dict[str, Any]
) -> None:
    path = copied(sound, family, folder) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    found = opened(folder)
    if found is not None:
        weights = found[1].model.get_input_embeddings().weight  # type: ignore[operator]
        assert weights.shape[0] == json.loads(path.read_text()).get("vocab_size", 300)


@times(0.8)
@given(st.sampled_from(FAMILIES), st.data())
def test_rewritten_configurations(
    sound: Path, folder: Path, family: str, data: st.DataObject
) -> None:
    path = copied(sound, family, folder) / "config.json"
    path.write_text(json.dumps(data.draw(changed(json.loads(path.read_text())))))
    opened(folder)


@times(1.6)
@given(
    st.sampled_from(
        ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"]
    ),
    st.lists(BITS.map(lambda place: (place[0] ** 4, place[1])), max_size=4),
    st.sampled_from([1.0, 1.0, 1.0, 0.99, 0.5, 0.01]),
)
@example("model.safetensors", [], 0.0)
def test_damaged_files(
    sound: Path, folder: Path, name: str, bits: list[tuple[float, int]], cut: float
) -> None:
    path = copied(sound, "bert", folder) / name
    before = path.read_bytes()
    path.write_bytes(damaged(before, bits, cut))
    assume(path.read_bytes() != before)
    found = opened(folder)
    if found is not None:
        known = resolve_encoder(EncoderSpec(name=str(sound / "bert")))
        digests = (found[0].digest, found[0].tokenizer_digest)
        # Other bytes are another encoder: nothing made with the sound one is used for it.
        if name in ("model.safetensors", "config.json"):
            assert digests[0] != known.digest
        else:
            assert digests[1] != known.tokenizer_digest


def test_a_tokenizer_that_loads_and_cannot_be_used(sound: Path, folder: Path) -> None:
    path = copied(sound, "bert", folder) / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": [1]}))
    assert opened(folder) is None


def test_a_configuration_of_many_more_weights_than_there_are(sound: Path, folder: Path) -> None:
    """They would be made up in memory, all of them, before their shapes were compared."""
    path = copied(sound, "bert", folder) / "config.json"
    path.write_text(
        json.dumps(
            json.loads(path.read_text()) | {"hidden_size": 200_000, "intermediate_size": 10**6}
        )
    )
    with pytest.raises(EncoderError, match=r"weights do not fit: config.json in .* describes"):
        resolve_encoder(EncoderSpec(name=str(folder)))


@times(2)
@given(st.sampled_from(["tokenizer.json", "tokenizer_config.json"]), st.data())
def test_rewritten_tokenizers(sound: Path, folder: Path, name: str, data: st.DataObject) -> None:
    path = copied(sound, "bert", folder) / name
    path.write_text(json.dumps(data.draw(changed(json.loads(path.read_text())))))
    opened(folder)


@times(1)
@given(st.sampled_from(["header", "length"]), st.integers(0, 2**64 - 1), st.text(max_size=30))
def test_headers_of_safetensors(
    sound: Path, folder: Path, part: str, length: int, text: str
) -> None:
    path = copied(sound, "bert", folder) / "model.safetensors"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    if part == "length":
        path.write_bytes(length.to_bytes(8, "little") + content[8:])
    else:
        name = next(name for name in header if name != "__metadata__")
        header[name] = {**header[name], "shape": [length], "dtype": text}
        new = json.dumps(header).encode()
        path.write_bytes(len(new).to_bytes(8, "little") + new + content[8 + size :])
    assert opened(folder) is None
