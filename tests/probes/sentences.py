"""Tiny encoders with heads of their own, as sentence-transformers and transformers save them."""

from collections.abc import Callable
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertModel

import papa
from papa.spec import NamedMetric
from tests.make import SIZES
from tests.models.inputs import with_tokenizer

SMALL = SIZES | {"num_hidden_layers": 2, "vocab_size": 30522, "max_position_embeddings": 64}
WORDS = ("cat", "dog", "ship", "tree", "film", "town", "river", "stone", "glass", "bread", "road")
SIMILAR: NamedMetric = "cosine_spearman"


def original(
    encoder: Path | str,
    rows: dict[str, list[object]],
    *,
    metric: NamedMetric = "accuracy",
    labels: tuple[str, ...] | None = None,
) -> float:
    """The score of the native head on pairs of texts, with no head constant."""
    task = papa.Task(
        text="a", text_pair="b", label="label", metric=metric, head="native", labels=labels
    )
    measurement = papa.measure(
        papa.load_encoder(encoder, slots=32, device="cpu"),
        {"train": rows, "validation": rows},
        task=task,
        keep=[1],
        orders=["first_to_last"],
        probe_seeds=[0],
        progress=False,
    )
    return float(measurement.results["score"].iloc[0])


def pairs(count: int) -> dict[str, list[object]]:
    rows: dict[str, list[object]] = {"a": [], "b": [], "label": []}
    for row in range(count):
        shared = row % 5
        first = [WORDS[(row * 5 + word * 7) % 11] for word in range(5)]
        second = first[:shared] + [WORDS[(row * 3 + word * 5) % 11] for word in range(5 - shared)]
        rows["a"].append(" ".join(first))
        rows["b"].append(" ".join(second).title())
        rows["label"].append(float(shared))
    return rows


def sentence_encoder(
    folder: Path,
    *modules: Callable[[], torch.nn.Module],
    prompts: dict[str, str] | None = None,
    prompt: str | None = None,
) -> Path:
    """What sentence-transformers saves of a tiny BERT and modules after it."""
    torch.manual_seed(1)
    plain = with_tokenizer(BertModel(BertConfig.from_dict(SMALL)).eval(), folder / "plain")
    torch.manual_seed(3)
    all_modules = [Transformer(str(plain), max_seq_length=32), *(make() for make in modules)]
    model = SentenceTransformer(
        modules=all_modules, device="cpu", prompts=prompts, default_prompt_name=prompt
    )
    model.save(str(folder / "model"))
    return folder / "model"


def mean() -> Pooling:
    return Pooling(32, "mean")


def dense() -> Dense:
    return Dense(32, 4, bias=True, activation_function=torch.nn.Tanh())
