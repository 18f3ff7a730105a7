"""An exported folder in other libraries: put together as its page shows, and refused with what does
load it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

import papa
from tests.exporting.conftest import FIRST


def test_sentence_transformers_pools_its_hidden_states(written: Path) -> None:
    module = papa.SentenceModule(written)
    model = SentenceTransformer(
        modules=[module, Pooling(module.get_embedding_dimension(), "mean"), Normalize()],
        device="cpu",
    )
    vectors = model.encode(FIRST, batch_size=2, convert_to_tensor=True, show_progress_bar=False)
    own = papa.load_exported(written)
    inputs = own.tokenizer(FIRST, padding=True, return_tensors="pt")  # type: ignore[misc]
    mask = inputs["attention_mask"][..., None]
    means = (own(**inputs).last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)
    torch.testing.assert_close(vectors, torch.nn.functional.normalize(means), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(vectors[0], vectors[1], atol=1e-2), "negative control"
    assert model.max_seq_length == module.max_seq_length


def test_a_long_text_is_cut_in_sentence_transformers(written: Path) -> None:
    module = papa.SentenceModule(written)
    assert module.preprocess(["facts " * 300])["input_ids"].shape == (1, module.max_seq_length)


def test_a_pipeline_extracts_features(written: Path) -> None:
    model = papa.load_exported(written)
    extract = pipeline("feature-extraction", model=model, tokenizer=model.tokenizer, device="cpu")
    found = torch.tensor(extract(FIRST[0]))
    inputs = model.tokenizer([FIRST[0]], return_tensors="pt")  # type: ignore[misc]
    torch.testing.assert_close(found, model(**inputs).last_hidden_state, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "load",
    [
        AutoModel.from_pretrained,
        AutoModelForSequenceClassification.from_pretrained,
        SentenceTransformer,
        lambda folder: pipeline("feature-extraction", model=folder),
        lambda folder: AutoModel.from_config(AutoConfig.from_pretrained(folder)),
    ],
)
def test_what_cannot_load_it_names_what_can(written: Path, load: Callable[[str], Any]) -> None:
    """Without the configuration there was random noise in the rows that are left out, and no word
    of it.
    """
    with pytest.raises(KeyError) as refused:
        load(str(written))
    assert str(refused.value) == "'an export of PAPA: load it with papa.load_exported(folder)'"


def test_its_tokenizer_loads_as_any(written: Path) -> None:
    assert len(AutoTokenizer.from_pretrained(written)) > 5
    assert (
        len(AutoTokenizer.from_pretrained(written, config=papa.load_exported(written).config)) > 5
    )
