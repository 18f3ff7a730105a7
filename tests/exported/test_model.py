"""An export is a model like others: it is copied, called by threads, trained and saved."""

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

import papa
from tests.exported.exports import (
    FIRST,
    RELATIVE,
    SECOND,
    TOLERANCE,
    difference,
    padded,
    saved,
    states,
    tokenizer_of,
)
from tests.make import random_model


def replica_of(model: torch.nn.Module) -> Any:
    """Return what ``torch.nn.DataParallel`` makes of a model for one device, as its ``replicate``
    does, which needs GPUs: a copy of each module, and of its tensors.
    """
    copies: dict[torch.nn.Module, Any] = {
        module: module._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        for module in model.modules()
    }
    for module, replica in copies.items():
        for name, child in module.named_children():
            setattr(replica, name, copies[child])
        for name, parameter in module._parameters.items():
            setattr(replica, name, None if parameter is None else parameter.detach().clone())
        for name, buffer in module._buffers.items():
            replica._buffers[name] = None if buffer is None else buffer.clone()
    return copies[model]


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert"])
def test_a_replica_of_data_parallel_computes_with_its_own_tensors(
    family: str, tmp_path: Path
) -> None:
    exported, tokens = saved(random_model(family).float(), tokenizer_of(family), tmp_path)
    texts = padded(tokens)
    expected = states(exported, texts)
    replica = replica_of(exported)
    exported.to("meta")  # Whatever a replica takes from its model has no numbers any more.
    assert difference(states(replica, texts), expected) < TOLERANCE
    with torch.no_grad():
        replica.inner.get_input_embeddings().weight.neg_()
    assert difference(states(replica, texts), expected) > 0.1, "negative control"


@pytest.mark.parametrize("family", RELATIVE)
def test_replicas_of_layers_that_compute_attention_themselves_are_refused(
    family: str, tmp_path: Path
) -> None:
    exported, _ = saved(random_model(family).float(), tokenizer_of(family), tmp_path)
    with pytest.raises(papa.PapaError, match="DistributedDataParallel"):
        replica_of(exported)


@pytest.mark.parametrize("family", ["bert", "deberta", "mpnet"])
def test_a_copy_has_weights_of_its_own(family: str, tmp_path: Path) -> None:
    """As dynamic quantisation copies a model."""
    exported, tokens = saved(
        random_model(family).float(), tokenizer_of(family), tmp_path / "export"
    )
    inputs = padded(tokens)
    before = states(exported, inputs)
    copied = copy.deepcopy(exported)
    assert difference(states(copied, inputs), before) == 0
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.mul_(2)
    assert difference(states(copied, inputs), before) > 0.1
    assert difference(states(exported, inputs), before) == 0


@pytest.mark.parametrize("family", ["bert", "deberta", "mpnet"])
def test_threads_may_call_it_at_once(family: str, tmp_path: Path) -> None:
    exported, tokens = saved(
        random_model(family).float(), tokenizer_of(family), tmp_path / "export"
    )
    batches = [padded(tokens), tokens(SECOND, padding=True, return_tensors="pt")] * 20
    expected = [states(exported, batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        computed = list(pool.map(partial(states, exported), batches))
    for actual, one_by_one in zip(computed, expected, strict=True):
        assert difference(actual, one_by_one) < TOLERANCE
    assert difference([expected[0][0][:2]], [expected[1][0][:2]]) > 0.1


@pytest.mark.parametrize("family", ["bert", "deberta"])
def test_gradients_are_the_same_with_checkpointing(family: str, tmp_path: Path) -> None:
    """Of two passes before one backward pass, which computes the layers of both again."""
    exported, tokens = saved(
        random_model(family).float(), tokenizer_of(family), tmp_path / "export"
    )
    batches = [
        tokens(FIRST, padding=True, return_tensors="pt"),
        tokens(SECOND[:1], return_tensors="pt"),
    ]

    def gradient() -> Tensor:
        exported.train()
        for module in exported.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        exported.zero_grad()
        means = [exported(**batch).last_hidden_state.pow(2).mean() for batch in batches]
        sum(means).backward()
        return exported.inner.embeddings.word_embeddings.weight.grad.clone()

    expected = gradient()
    exported.activation_checkpointing_enable()
    assert difference([gradient()], [expected]) < TOLERANCE * float(expected.abs().max())
    del batches[1]
    assert difference([gradient()], [expected]) > 0.01 * float(expected.abs().max())


def test_it_is_trained_with_dropout(folder: Path) -> None:
    exported = AutoModel.from_pretrained(folder)
    inputs = padded(AutoTokenizer.from_pretrained(folder))
    assert difference(states(exported, inputs), states(exported, inputs)) == 0
    exported.train()
    assert difference(states(exported, inputs), states(exported, inputs)) > 0.01
    exported(**inputs).last_hidden_state.pow(2).sum().backward()
    for name, parameter in exported.named_parameters():
        assert (parameter.grad is None) == ("pooler" in name), name
        assert "constants" not in name


def test_it_is_saved_as_it_was_trained(folder: Path, tmp_path: Path) -> None:
    exported = AutoModel.from_pretrained(folder)
    inputs = padded(AutoTokenizer.from_pretrained(folder))
    before = states(exported, inputs)
    with torch.no_grad():
        exported.inner.embeddings.word_embeddings.weight.mul_(2)
    exported.save_pretrained(tmp_path / "trained")
    reloaded = states(AutoModel.from_pretrained(tmp_path / "trained"), inputs)
    assert difference(reloaded, states(exported, inputs)) == 0
    assert difference(reloaded, before) > 0.1
