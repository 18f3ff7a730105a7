"""Encoders as folders, texts, and constants for them: what an export starts from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import papa
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import replaced
from papa.corpora import load_corpus, tokenise_corpus
from papa.corpora.batches import micro_batch
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import special_tokens_of
from papa.encoders.encoder import load_encoder
from papa.encoders.reference import EncoderReference, load_tokenizer, resolve_encoder
from papa.exporting import ExportedEncoder, export_encoder, measuring
from papa.exporting.document import ExportDocument
from papa.exporting.placement import InputLayout
from papa.spec import EncoderSpec, LayoutSpec, TaskSpec
from tests.encoders.models import random_model

FIRST = [
    "the doll wriggled itself loose and ran",
    "if you had eaten more you would want less",
    "the more we study verbs",
    "facts",
    "day by day the facts are getting murkier",
]
SECOND = ["a doll", "less is more and more is less", "verbs", "nobody knows the facts", "why"]
SLOTS = 64
GRAPHS = ("electra", "roberta", "deberta_v3")
"""Families of which graphs are written, which takes seconds for each layer: they have two."""


@dataclass(frozen=True)
class Case:
    """One encoder on texts of one kind, with random constants.

    Attributes:
        reference, layout, constants: what an export takes.
        split: the texts, laid out by the corpora.
        corpus: the same texts as training and as validation rows of ``task``.
        texts: the same texts, as arguments of a tokenizer.
    """

    reference: EncoderReference
    layout: InputLayout
    constants: ConstantMatrices
    split: TokenisedSplit
    corpus: TokenisedCorpus
    task: TaskSpec
    texts: tuple[list[str], ...]

    def every_head(self) -> list[tuple[int, int]]:
        return list(product(range(self.reference.layers), range(self.reference.heads)))

    def some_heads(self) -> list[tuple[int, int]]:
        """Every head of the second layer, every other head of the others."""
        return [
            (layer, head) for layer, head in self.every_head() if layer == 1 or (layer + head) % 2
        ]

    def export(
        self, folder: Path, heads: list[tuple[int, int]] | None = None, **more: Any
    ) -> ExportDocument:
        """Write a folder in which some heads are constant."""
        heads = self.some_heads() if heads is None else heads
        return export_encoder(self.reference, self.constants, heads, self.layout, folder, **more)

    def exported(
        self, folder: Path, heads: list[tuple[int, int]] | None = None, **more: Any
    ) -> ExportedEncoder:
        """Such a folder, loaded again."""
        self.export(folder, heads, **more)
        return papa.load_exported(folder)

    def tokens(self, model: ExportedEncoder) -> dict[str, Tensor]:
        """Its texts as the model takes them."""
        assert model.tokenizer is not None
        return dict(model.tokenizer(*self.texts, padding=True, return_tensors="pt"))

    @torch.inference_mode()
    def expected(self, heads: list[tuple[int, int]]) -> list[Tensor]:
        """Hidden states [tokens, width] of all real tokens under ``replaced``, embeddings first."""
        encoder = load_encoder(self.reference)
        batch = micro_batch(self.split, self.split.rows)
        with replaced(encoder, self.constants, heads):
            return [states[batch.attention_mask] for states in encoder.hidden_states(batch)]


@pytest.fixture(scope="package", autouse=True)
def _hurried() -> Iterator[None]:
    """Speed is measured on one shape by the fewest pairs of runs; how many of each it takes is
    ``test_speed``'s.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "PATIENCE", 0.0)
        patch.setattr(measuring, "BUDGET", 0.0)
        yield


@pytest.fixture(scope="session")
def folders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """The folder of a family's encoder: a random model and a tokenizer of its own, or trained
    weights.
    """
    made: dict[str, str] = {}

    def folder(family: str) -> str:
        if family == "minilm":
            return request.getfixturevalue("shallow")
        if family not in made:
            path = tmp_path_factory.mktemp(family)
            model = random_model(family).float()
            if family in GRAPHS:
                model.encoder.layer = model.encoder.layer[:2]
                model.config.num_hidden_layers = 2
            model.save_pretrained(path)
            (_roberta_tokenizer() if family == "roberta" else _electra_tokenizer()).save_pretrained(
                path
            )
            made[family] = str(path)
        return made[family]

    return folder


@pytest.fixture(scope="session")
def make_case(
    folders: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Case]:
    """A case of a family, on one text or two; cases that are alike are made once."""
    made: dict[str, Case] = {}

    def make(family: str, kind: str, first: list[str] = FIRST, **layout: Any) -> Case:
        name = repr((family, kind, first, sorted(layout.items())))
        if name not in made:
            made[name] = build(family, kind, first, **layout)
        return made[name]

    def build(family: str, kind: str, first: list[str], **layout: Any) -> Case:
        reference = resolve_encoder(EncoderSpec(name=folders(family)))
        folder = tmp_path_factory.mktemp("case")
        lines = [
            json.dumps(
                {
                    "words": a.split(),
                    "label": ["long" if len(w) > 4 else "short" for w in a.split()],
                }
                if kind == "words"
                else {"text": a, "text_pair": b, "label": row % 2}
            )
            for row, (a, b) in enumerate(zip(first, SECOND, strict=True))
        ]
        rows = folder / "rows.jsonl"
        rows.write_text("\n".join(lines) + "\n")
        text = "words" if kind == "words" else "text"
        columns = {text: text, "label": "label"} | (
            {"text_pair": "text_pair"} if kind == "pair" else {}
        )
        task = TaskSpec.model_validate(
            {
                "name": "task",
                "kind": kind,
                "source": {"kind": "files", "train": rows, "validation": rows},
                "columns": columns,
                "metric": "token_f1" if kind == "words" else "accuracy",
                "slots": SLOTS,
                "probe": {"learning_rate": 1e-4, "batch_size": 8, "epochs": 1},
            }
        )
        tokenizer = load_tokenizer(reference)
        spec = LayoutSpec(**layout)
        corpus = tokenise_corpus(task, spec, tokenizer, reference, folder / "corpus", shard_rows=64)
        torch.manual_seed(1)
        # Sharp rows: near-uniform ones would make any two sets of heads alike.
        matrices = (4 * torch.randn(reference.layers, reference.heads, SLOTS, SLOTS)).softmax(
            dim=-1
        )
        return Case(
            reference=reference,
            layout=InputLayout.of(task.kind, SLOTS, spec, special_tokens_of(tokenizer)),
            constants=ConstantMatrices(
                matrices, torch.ones(SLOTS, SLOTS, dtype=torch.bool), "average"
            ),
            split=load_corpus(corpus).split("validation"),
            corpus=load_corpus(corpus),
            task=task,
            texts=(first, SECOND) if kind == "pair" else (first,),
        )

    return make


@pytest.fixture(scope="session")
def small(make_case: Callable[..., Case]) -> Case:
    """A small random encoder on one text."""
    return make_case("electra", "text")


@pytest.fixture
def written(small: Case, tmp_path: Path) -> Path:
    """An exported folder."""
    small.export(tmp_path / "export")
    return tmp_path / "export"


def _roberta_tokenizer() -> Any:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaTokenizer

    trained = ByteLevelBPETokenizer()
    special_tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(
        FIRST, vocab_size=300, min_frequency=1, special_tokens=special_tokens
    )
    model = json.loads(trained.to_str())["model"]
    merges = [
        tuple(merge) if isinstance(merge, list) else tuple(merge.split(" "))
        for merge in model["merges"]
    ]
    return RobertaTokenizer(vocab=model["vocab"], merges=merges)


def _electra_tokenizer() -> Any:
    from transformers import ElectraTokenizer

    words = sorted({word for text in (*FIRST, *SECOND) for word in text.split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    return ElectraTokenizer(vocab={word: number for number, word in enumerate(vocabulary)})


def document_with(**fields: Any) -> ExportDocument:
    """A document of two layers of two heads, one of which is constant, and else of nothing."""
    known = {
        "encoder": {"name": "a", "revision": None, "layers": 2, "heads": 2},
        "layout": {"texts": 1, "longest": [6], "slots": 8},
        "heads": ((0, 0),),
        "constants": "average",
        "study": {},
        "score": None,
        "speed": None,
        "fidelity": None,
        "size": {"weights": 1, "original_weights": 2, "constants": 1},
    }
    return ExportDocument(**known | fields)
