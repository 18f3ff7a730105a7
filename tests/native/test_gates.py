"""Causal gates: heads planted to help, to hurt and to do nothing have these roles."""

from functools import partial

import pandas
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import papa
from tests.native.models import bert, gpt, texts

WORDS = 4
WIDTH = 32
HEADS = 4
OWN = WIDTH // HEADS


def planted() -> GPT2LMHeadModel:
    """Texts repeat a word, which a token's first numbers say; the head reads the next ones."""
    sizes = {"n_layer": 1, "n_embd": WIDTH, "n_head": HEADS, "n_positions": 16, "n_inner": 4}
    sizes |= {"vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config.from_dict(sizes | {"tie_word_embeddings": False})
    model = GPT2LMHeadModel(config).eval()
    block = model.transformer.h[0]
    word = torch.eye(WORDS)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 or not parameter.eq(1).all():
                parameter.zero_()
        model.transformer.wte.weight[:, :WORDS] = word
        model.lm_head.weight[:, WORDS : 2 * WORDS] = word / 2
        for head, strength in ((0, 0.2), (1, -0.1)):
            start = head * OWN
            block.attn.c_attn.weight[:WORDS, 2 * WIDTH + start :][:, :WORDS] = word
            block.attn.c_proj.weight[start : start + WORDS, WORDS : 2 * WORDS] = strength * word
    return model


DATA = [{"input_ids": torch.arange(WORDS)[:, None].expand(WORDS, size)} for size in (5, 6, 7, 8)]


gate_scores = partial(papa.head_scores, method="causal_gates", substitute="zeros", progress=False)


@pytest.mark.slow
def test_planted_heads_have_their_roles() -> None:
    model = planted()
    gates = gate_scores(model, DATA, ranking_seeds=[0, 1])
    assert gates["role"].tolist() == ["facilitating", "interfering", *["irrelevant"] * 2]
    assert gates["score"][0] > 0.9 > 0.1 > gates["score"][1:].max()
    effects = papa.head_scores(model, DATA, method="effect", substitute="zeros", progress=False)
    loss = effects["score"]
    assert loss[0] > 0.05 > 0 > loss[1], "what the roles say"
    assert loss[2:].abs().max() < 1e-6
    single_rows = [{"input_ids": row[None]} for batch in DATA for row in batch["input_ids"]]
    pandas.testing.assert_frame_equal(gate_scores(model, single_rows, ranking_seeds=[0, 1]), gates)
    # Of one word over and over the first is like any.
    of_first = gate_scores(model, DATA, ranking_seeds=[0], substitute="first")
    assert set(of_first["role"]) == {"irrelevant"}


def test_gates_that_still_move_give_no_role() -> None:
    assert gate_scores(planted(), DATA, ranking_seeds=[0], epochs=3)["role"].isna().all()


def test_gates_need_a_loss() -> None:
    with pytest.raises(papa.PapaError, match="causal_gates"):
        gate_scores(bert(), texts(), ranking_seeds=[0])


@pytest.mark.filterwarnings("ignore:data holds one text")
def test_each_seed_draws_gates_of_its_own() -> None:
    """Of one text seeds differ in nothing else."""
    data = [{"input_ids": torch.arange(1, 9)[None]}]
    scores = [
        papa.head_scores(
            gpt(), data, method="gates", substitute="zeros", ranking_seeds=[seed], progress=False
        )["score"]
        for seed in (0, 0, 1)
    ]
    assert scores[0].equals(scores[1])
    assert (scores[0] - scores[2]).abs().max() > 1e-4
