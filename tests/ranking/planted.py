"""An encoder in which one head alone carries the label, and a task of words that needs it.

Each sentence has one marked word, which says its class, and others like it without the mark, drawn
by chance; every word's label is the class. The planted head looks at the marked word, wherever it
is; the average of its attention looks everywhere, where both classes are. The other heads' weights
are random and small.
"""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoTokenizer, BertConfig, BertForTokenClassification, BertModel

from papa.heads.average import average_of, average_split
from papa.models.encoder import load_encoder
from papa.models.native import class_of_native_head, load_native_model
from papa.models.reference import EncoderReference, embedded_folder, load_tokenizer, resolve_encoder
from papa.native.loading import open_native
from papa.native.losses import LABELS
from papa.native.passes import NativeHead
from papa.probes.evaluate import train_probes
from papa.ranking.head_scores import EVALUATION_ROWS, rows_of_seed
from papa.ranking.loss_scores import LossRequest, ProbeLoss, ScoringRequest
from papa.spec import EncoderSpec, ExecutionSpec, FilesSource, LayoutSpec, RankingSpec, TaskSpec
from papa.spec.orders import Head
from papa.text.corpus import load_corpus, tokenise_corpus
from tests.models.inputs import with_tokenizer

LAYERS = 2
HEADS = 3
WIDTH = 24
MARKED = ("king", "queen")
PLAIN = ("man", "woman")
"""A word for each class."""
SHARPNESS = 12.0


def planted_encoder(folder: Path, head: Head) -> EncoderReference:
    vocabulary = AutoTokenizer.from_pretrained(embedded_folder())
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=WIDTH,
        max_position_embeddings=32,
        initializer_range=0.05,
    )
    torch.manual_seed(0)
    model = BertModel(config, add_pooling_layer=False).requires_grad_(False)
    words = model.embeddings.word_embeddings.weight.normal_()
    model.embeddings.position_embeddings.weight.zero_()
    model.embeddings.token_type_embeddings.weight.zero_()
    ids = vocabulary.convert_tokens_to_ids([*MARKED, *PLAIN, "[CLS]", "[SEP]"])
    # Times what the words' states shall give: the vector whose products with them give it.
    read = torch.linalg.pinv(torch.nn.functional.layer_norm(words[ids], (WIDTH,)))
    layer, number = head
    attention = model.encoder.layer[layer].attention
    width = WIDTH // HEADS
    first = number * width
    attention.self.query.weight[first : first + width] = 0
    attention.self.query.bias[first] = width**0.5
    attention.self.key.weight[first] = read[:, :2].sum(1) * SHARPNESS
    attention.self.value.weight[first] = read[:, :4] @ Tensor([2, -2, 2, -2])
    attention.output.dense.weight[:, first] = torch.randn(WIDTH)
    return resolve_encoder(EncoderSpec(name=str(with_tokenizer(model, folder))))


def with_classifier(folder: Path, task: TaskSpec) -> None:
    """Give the encoder of a folder a head that answers the task, trained on its training text."""
    config = BertConfig.from_pretrained(folder)
    config.id2label = {0: "male", 1: "female"}
    config.label2id = {"male": 0, "female": 1}
    torch.manual_seed(0)
    model = BertForTokenClassification.from_pretrained(folder, config=config).eval()
    model.bert.requires_grad_(False)
    vocabulary = AutoTokenizer.from_pretrained(folder)
    assert isinstance(task.source, FilesSource)
    rows = [json.loads(line) for line in task.source.train.read_text().splitlines()]
    inputs = vocabulary(
        [row["words"] for row in rows], is_split_into_words=True, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        states = model.bert(
            inputs["input_ids"], inputs["attention_mask"], inputs["token_type_ids"]
        ).last_hidden_state
    truth = torch.tensor([row["tags"][0] for row in rows])[:, None].expand(states.shape[:2])
    words = (inputs["input_ids"] > 103) & inputs["attention_mask"].bool()
    optimizer = torch.optim.Adam(model.classifier.parameters(), lr=0.05)
    for _ in range(200):
        loss = torch.nn.functional.cross_entropy(model.classifier(states[words]), truth[words])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)


def planted_task(folder: Path) -> TaskSpec:
    drawn = random.Random(0)
    for split, rows in (("train", 192), ("validation", 32)):
        with (folder / f"{split}.jsonl").open("w") as file:
            for _ in range(rows):
                label = drawn.randrange(2)
                words = [drawn.choice(PLAIN) for _ in range(drawn.randrange(5, 9))]
                words.insert(drawn.randrange(len(words) + 1), MARKED[label])
                file.write(json.dumps({"words": words, "tags": [label] * len(words)}) + "\n")
    files = {split: folder / f"{split}.jsonl" for split in ("train", "validation")}
    return TaskSpec.model_validate(
        {
            "name": "planted",
            "kind": "words",
            "source": {"kind": "files", **files},
            "columns": {"words": "words", "label": "tags"},
            "labels": ["male", "female"],
            "metric": "accuracy",
            "slots": 16,
            "probe": {"learning_rate": 1e-2, "batch_size": 16, "epochs": 4},
        }
    )


class Planted(NamedTuple):
    """The head that carries the label, and all that a method needs to score the heads."""

    head: Head
    scoring_request: ScoringRequest
    loss: ProbeLoss | NativeHead

    @property
    def request(self) -> LossRequest[ProbeLoss | NativeHead]:
        """By the loss of the native head or of the probe."""
        constants = self.scoring_request.constants
        rows = self.scoring_request.rows
        valued = rows_of_seed(len(rows), EVALUATION_ROWS, 0)
        return LossRequest(self.loss, constants, rows, valued, 100, 0)

    def weight(self, layer: int) -> Tensor:
        model: Any = self.scoring_request.encoder.model
        if isinstance(self.loss, NativeHead):
            model = self.loss.model.base_model
        output_weights: Tensor = model.encoder.layer[layer].attention.output.dense.weight
        return output_weights

    @contextmanager
    def scaled(self, head: Head, factor: float) -> Iterator[None]:
        layer, number = head
        weight = self.weight(layer).data
        width = WIDTH // HEADS
        original_weight = weight.clone()
        weight[:, number * width : (number + 1) * width] *= factor
        try:
            yield
        finally:
            weight.copy_(original_weight)


def planted(folder: Path, head: Head, *, own_head: bool = False) -> Planted:
    """The encoder, its tokenised task and average, and a trained probe or the native head."""
    task = planted_task(folder)
    corpus_folder = folder / "corpus"
    reference = planted_encoder(folder / "encoder", head)
    if own_head:
        task = task.model_copy(update={"head": "native"})
        with_classifier(folder / "encoder", task)
        reference = resolve_encoder(EncoderSpec(name=str(folder / "encoder")))
    tokenise_corpus(task, LayoutSpec(), load_tokenizer(reference), corpus_folder, shard_rows=64)
    encoder = load_encoder(reference)
    corpus = load_corpus(corpus_folder)
    execution = ExecutionSpec()
    split = corpus.split("train")
    ranking = RankingSpec(epochs=6, learning_rate=0.05)
    average = average_of(average_split(encoder, split, slots=task.slots, batch_tokens=1024))
    scoring_request = ScoringRequest(encoder, average, corpus, task, ranking, 0, execution)
    if own_head:
        model = load_native_model(reference, class_of_native_head(task, reference))
        native = open_native(model, task, reference, split, corpus.label_names)
        return Planted(head, scoring_request, replace(native, loss=LABELS))
    (probe,) = train_probes(encoder, corpus, task, [0], folder / "features", execution)
    loss = ProbeLoss(encoder, probe.requires_grad_(False), corpus)
    return Planted(head, scoring_request, loss)
