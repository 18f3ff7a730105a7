"""The table of model types agrees with the three laws, tested anew."""

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from papa.models.architectures import Outcome, read_architectures
from tests.architectures.model_types import architectures_of

TABLE = read_architectures()
REPRESENTATIVE = (
    *("bert", "mpnet", "modernbert", "gpt2", "llama", "gemma2", "lfm2", "gpt_oss", "diffllama"),
    *("t5", "bart", "whisper", "clip", "llava", "vit", "wav2vec2", "deepseek_v32", "bloom"),
)
"""One type of every kind: families, windows, sinks, several parts, images, sound, refusals."""


@pytest.mark.parametrize("model_type", REPRESENTATIVE)
def test_a_model_type_is_as_the_table_says(model_type: str) -> None:
    _check(model_type)


@pytest.mark.architectures
@pytest.mark.parametrize("model_type", sorted({row.model_type for row in TABLE}))
def test_every_model_type_is_as_the_table_says(model_type: str) -> None:
    _check(model_type)


def _check(model_type: str) -> None:
    expected = {row.part: row.outcome for row in TABLE if row.model_type == model_type}
    assert {row.part: row.outcome for row in architectures_of(model_type)} == expected


def test_no_model_type_fails() -> None:
    assert [row for row in TABLE if row.outcome is Outcome.FAILS] == []


def test_the_table_has_every_model_type() -> None:
    assert {row.model_type for row in TABLE} >= set(CONFIG_MAPPING_NAMES)
