"""Features against the encoder on one padded input at a time; in bfloat16 by scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

import papa
from papa.errors import DataError
from papa.heads.outputs import ConstantOutputs
from papa.heads.replacement import replaced
from papa.heads.resampling import drawn_rows
from papa.heads.stored_outputs import outputs_over
from papa.models.encoder import Encoder, load_encoder
from papa.models.layer import Observe
from papa.models.reference import EncoderReference
from papa.probes.features import compute_features, values_shape
from papa.spec import TaskSpec
from papa.text.batches import micro_batch, micro_batches
from papa.text.corpus import TokenisedCorpus, TokenisedSplit
from tests.make import outputs_of
from tests.probes.conftest import HEADS as EVERY
from tests.probes.conftest import Cell, Corpora, CorpusOf, Tasks, scores

TASKS = ["reviews", "review_pairs", "wnut17", "wikitext"]
HEADS = EVERY[::2]


@pytest.mark.parametrize(
    ("task", "batch_tokens"), [*((task, 512) for task in TASKS), ("reviews", 64), ("reviews", 2048)]
)
def test_features_are_those_of_each_input_alone(
    task: str, batch_tokens: int, encoder: Encoder, corpora: Corpora, tmp_path: Path
) -> None:
    split = corpora[task].split("train")
    path = tmp_path / "values.bin"
    features = compute_features(encoder, split, batch_tokens, "float32", file=path)
    assert path.stat().st_size == features.values.nbytes
    assert features.values.shape == values_shape(encoder, split)
    assert len(features.values) == int(features.offsets[-1])
    for row in range(0, len(split), 7):
        batch = micro_batch(split, [row])
        tokens = slice(*features.offsets[row : row + 2].tolist())
        with torch.inference_mode():
            states = torch.stack(encoder.token_states(batch), dim=1)
        slot_ids = batch.columns
        labels = torch.from_numpy(split.labels_of([row]))
        if split.label_per_token:
            labelled = labels != -100
            states = states[labelled]
            slot_ids = slot_ids[labelled]
            labels = labels[labelled]
        torch.testing.assert_close(features.values[tokens], states, atol=2e-5, rtol=1e-5)
        assert torch.equal(features.slot_ids[tokens].long(), slot_ids)
        rows = tokens if split.label_per_token else slice(row, row + 1)
        stored_labels = features.labels[rows]
        assert torch.equal(stored_labels, labels)


def test_a_split_without_labelled_tokens_is_an_error(
    encoder: Encoder, corpora: Corpora, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = corpora["wnut17"].split("train")
    monkeypatch.setitem(split.__dict__, "labels", np.full_like(split.labels, -100))
    with pytest.raises(DataError, match="train"):
        values_shape(encoder, split)


SPLITS = ("train", "validation")


@pytest.fixture(scope="module")
def pos(tasks: Tasks, corpora_folder: Path) -> TaskSpec:
    files = {split: corpora_folder / "ud_ewt" / f"{split}.jsonl" for split in SPLITS}
    changes = {"source": {"kind": "files", **files}, "metric": "token_f1"}
    changes |= {"columns": {"words": "tokens", "label": "pos_tags"}}
    return TaskSpec.model_validate(tasks["wnut17"].model_dump() | changes)


@pytest.fixture(scope="module")
def words(pos: TaskSpec, corpus_of: CorpusOf) -> TokenisedCorpus:
    return corpus_of("wnut17", {"source": pos.source, "columns": pos.columns, "metric": pos.metric})


@pytest.mark.usefixtures("bfloat16_on_any_cpu")
def test_features_are_stored_as_the_study_says(
    reference: EncoderReference, cell: Cell, words: TokenisedCorpus, pos: TaskSpec, tmp_path: Path
) -> None:
    """In bfloat16 they take half the disk, for the same scores to the last bit."""
    half = load_encoder(replace(reference, precision="bfloat16"))
    features_by_dtype = {}
    for dtype in ("float32", "bfloat16"):
        sizes = set[int]()

        def look(done: int, total: int, sizes: set[int] = sizes) -> None:
            sizes.update(path.stat().st_size for path in tmp_path.rglob("*.bin"))

        features_by_dtype[dtype] = scores(cell(pos, words, half, dtype=dtype, progress=look))
        numbers = np.prod(values_shape(half, words.split("train")))
        assert sizes == {numbers * getattr(torch, dtype).itemsize}
    assert features_by_dtype["float32"].tolist() == features_by_dtype["bfloat16"].tolist()
    streamed = scores(cell(pos, words, half, budget=0))
    full = scores(cell(pos, words))
    assert full.min() > 0.3
    assert streamed == pytest.approx(features_by_dtype["float32"], abs=0.02)
    assert features_by_dtype["float32"] == pytest.approx(full, abs=0.03)


@pytest.fixture(scope="module")
def stock(reference: EncoderReference) -> PreTrainedModel:
    return AutoModel.from_pretrained(reference.folder, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def train(corpora: Corpora) -> TokenisedSplit:
    return corpora["reviews"].split("train")


def padded(split: TokenisedSplit, rows: Sequence[int] | np.ndarray) -> dict[str, Tensor]:
    """Rows as the stock model takes them, each token at the position of its slot."""
    batch = micro_batch(split, rows)
    padded_inputs = torch.zeros(3, len(rows), split.slots, dtype=torch.int64)
    values = torch.stack([batch.input_ids, torch.ones_like(batch.input_ids), batch.token_type_ids])
    padded_inputs[:, batch.inputs_of_tokens, batch.slot_ids] = values
    return dict(zip(("input_ids", "attention_mask", "token_type_ids"), padded_inputs, strict=True))


@torch.inference_mode()
def difference(
    encoder: Encoder, stock: PreTrainedModel, split: TokenisedSplit, rows: np.ndarray
) -> float:
    inputs = padded(split, rows)
    batch = micro_batch(split, rows)
    theirs = outputs_of(stock, inputs).last_hidden_state[batch.inputs_of_tokens, batch.slot_ids]
    return float((encoder.token_states(batch)[-1] - theirs).abs().max())


def of_split(
    encoder: Encoder, split: TokenisedSplit, kind: str, seed: int | None = None
) -> ConstantOutputs:
    def observe_rows(observe: Observe, rows: np.ndarray) -> None:
        encoder.observe(observe, micro_batches(split, rows, 256), len(rows))

    return outputs_over(observe_rows, split, kind, (encoder.layers, encoder.heads), seed)


def test_means_as_ablated(encoder: Encoder, stock: PreTrainedModel, train: TokenisedSplit) -> None:
    outputs = of_split(encoder, train, "mean_output")
    rows = np.arange(8)
    text = [padded(train, train.rows)]
    with papa.ablated(stock, HEADS, substitute="mean_output", data=text):
        with replaced(encoder, outputs, HEADS):
            assert difference(encoder, stock, train, rows) < 1e-5
        with replaced(encoder, of_split(encoder, train, "mean_output_by_slot"), HEADS):
            assert difference(encoder, stock, train, rows) > 0.01, "negative control"
        assert difference(encoder, stock, train, rows) > 0.01, "negative control"
    assert difference(encoder, stock, train, rows) < 1e-5, "both are as before"


@torch.inference_mode()
def test_means_by_slot_as_stock(
    encoder: Encoder, stock: PreTrainedModel, train: TokenisedSplit
) -> None:
    recorded: list[Tensor] = []
    module = stock.encoder.layer[1].attention.self
    hook = module.register_forward_hook(lambda module, inputs, output: recorded.append(output[0]))
    inputs = padded(train, train.rows)
    outputs_of(stock, inputs)
    hook.remove()
    real = inputs["attention_mask"].double()
    sums = torch.einsum("bs,bsd->sd", real, recorded[0].double())
    expected = (sums / real.sum(0).clamp(min=1)[:, None]).unflatten(1, (12, -1)).transpose(0, 1)
    means = of_split(encoder, train, "mean_output_by_slot")
    had = real.sum(0) > 0
    assert not had.all()
    torch.testing.assert_close(means.values[1][:, had], expected[:, had].float(), atol=1e-5, rtol=0)
    overall = (sums.sum(0) / real.sum()).unflatten(0, (12, -1)).float()
    for slot in (~had).nonzero()[:3, 0]:
        torch.testing.assert_close(means.values[1][:, slot], overall, atol=1e-5, rtol=0)
    overall_outputs = of_split(encoder, train, "mean_output")
    torch.testing.assert_close(overall_outputs.values[1][:, 0], overall, atol=1e-5, rtol=0)


def test_resampled_outputs_as_ablated(
    encoder: Encoder, stock: PreTrainedModel, train: TokenisedSplit
) -> None:
    outputs = of_split(encoder, train, "resampled_output", seed=3)
    drawn = {length: rows[0] for length, rows in drawn_rows(train, 3).items()}
    lengths = train.lengths
    shared = [length for length in drawn if (lengths == length).sum() > 1]
    common = max(shared, key=lambda length: int((lengths == length).sum()))
    for length in (min(shared), common, max(shared)):
        assert lengths[drawn[length]] == length
        # A donor of papa.ablated is another text.
        rows = train.rows[(lengths == length) & (train.rows != drawn[length])]
        data: list[Mapping[str, Tensor]] = [padded(train, [drawn[length]])]
        block = papa.ablated(stock, HEADS, substitute="resampled_output", data=data)
        with block, replaced(encoder, outputs, HEADS):
            assert difference(encoder, stock, train, rows) < 1e-5
    of_other_seed = of_split(encoder, train, "resampled_output", seed=4)
    rows = train.rows[lengths == common]
    with replaced(encoder, outputs, HEADS), torch.inference_mode():
        states = encoder.token_states(micro_batch(train, rows))[-1]
        with replaced(encoder, of_other_seed, HEADS):
            assert (encoder.token_states(micro_batch(train, rows))[-1] - states).abs().max() > 0.01
