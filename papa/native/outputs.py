"""What the outputs of a native head answer to each text."""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from papa.errors import DataError, EncoderError, HubUnreachableError, SpecError, in_one_line
from papa.heads.masks import real_tokens
from papa.hub import fetched
from papa.models.files import EMBEDDING, embeds_by
from papa.models.layer import at_least_single
from papa.native.batches import Batch
from papa.scores.answers import AnswerArrays
from papa.scores.custom import CustomScore, load_code
from papa.text.tokens import IGNORED

Answers: TypeAlias = dict[str, Tensor]
"""``lengths`` [texts], how many answers each text has; and of all answers in order one of

- ``logits`` [answers, classes]: of a text's class, of a token's, or of a label that is decided by
  itself,
- ``numbers`` [answers],
- ``embeddings`` [texts, width],
- ``words`` [answers, vocabulary], the logits of a language model at each token that counts, with
  ``top``, the likeliest, and where the true token is known its ``log_probabilities``,
- ``score`` [texts], of the user's own.
"""


def has_many_labels(config: PreTrainedConfig) -> bool:
    """Return whether a classifier decides on each label of a text by itself, by its sigmoid."""
    return config.problem_type == "multi_label_classification"


def class_names(model: PreTrainedModel) -> tuple[str, ...]:
    """Return the classes of a head, in its order."""
    return tuple(str(name) for _, name in sorted((model.config.id2label or {}).items()))


def answers_of(
    model: PreTrainedModel, outputs: object, batch: Batch, score: CustomScore | None = None
) -> Answers:
    """Return what a model's outputs answer to a batch, or a user's own score of them; gradients
    pass.

    Raises:
        DataError: The outputs are neither classes, a number, words nor hidden states; or ``score``
            gave no number for each text.
    """
    if score is not None:
        return _user_scores(score, outputs, batch)
    logits: Tensor | None = getattr(outputs, "logits", None)
    states: Tensor | None = getattr(outputs, "last_hidden_state", None)
    if logits is None and states is not None:
        return _embeddings(model, states, batch)
    if logits is None or (model.config.problem_type == "regression" and logits.shape[-1] > 1):
        raise DataError(
            f"the model returns {type(outputs).__name__}, without logits of classes, one number "
            "or last_hidden_state: give a function as score=, for 'effect' and not 'lambda'"
        )
    ones = torch.ones(len(logits), dtype=torch.int64)
    if logits.dim() == 2 and has_many_labels(model.config):
        return _answers_by_label(logits)
    if logits.dim() == 2 and logits.shape[1] == 1:
        return {"numbers": logits[:, 0], "lengths": ones}
    if logits.dim() == 2:
        return {"logits": logits, "lengths": ones}
    if model.get_output_embeddings() is None:  # It answers with no words of its vocabulary.
        counted = real_of(model, batch, logits)
        if batch.labels is not None and batch.labels.shape == counted.shape:
            counted = batch.labels != IGNORED
        return {"logits": logits[counted], "lengths": counted.sum(1)}
    return _words(model, logits, batch)


def concatenated(
    answers: Sequence[Answers], rows: Sequence[Int[np.ndarray, " texts"]]
) -> AnswerArrays:
    """Return the answers to all batches, without ``words``, sorted by ``rows``, the indices of
    their texts.
    """
    names = {frozenset(batch) for batch in answers}
    if len(names) > 1:
        raise DataError("some batches of data have labels: give labels with every batch, or none")
    lengths = [batch["lengths"].tolist() for batch in answers]
    order = np.argsort(np.concatenate(rows), kind="stable")
    arrays: AnswerArrays = {}
    for name in answers[0].keys() - {"words"}:
        pieces: list[Tensor] = []
        for batch, counts in zip(answers, lengths, strict=True):
            values = batch[name].cpu()
            values = values.float() if values.is_floating_point() else values
            pieces += values.split([1] * len(counts) if name == "lengths" else counts)
        arrays[name] = torch.cat([pieces[index] for index in order]).numpy()
    return arrays


def real_of(model: PreTrainedModel, batch: Batch, outputs: Tensor) -> Bool[Tensor, "texts tokens"]:
    """Return which tokens, or frames of sound, are no padding."""
    mask = batch.inputs.get("attention_mask")
    if mask is None:
        return outputs.new_ones(outputs.shape[:2], dtype=torch.bool)
    real = real_tokens(mask) if mask.dim() == 4 else None
    if real is not None:
        return nn.functional.pad(real, (0, outputs.shape[1] - real.shape[1])).to(outputs.device)
    # Of speech, whose mask is of samples.
    mask_of_frames = getattr(model, "_get_feature_vector_attention_mask", None)
    if mask.shape[1] != outputs.shape[1] and callable(mask_of_frames):
        mask = mask_of_frames(outputs.shape[1], mask)
    return mask.bool().to(outputs.device)


def _user_scores(score: CustomScore, outputs: object, batch: Batch) -> Answers:
    score = load_code(score)
    if not callable(score):
        raise SpecError(f"score is {score!r}, expected a function of outputs and batch")
    inputs = dict(batch.inputs)
    if batch.labels is not None:
        inputs["labels"] = batch.labels
    try:
        scores = torch.as_tensor(score(outputs, inputs)).float()
    except Exception as error:
        raise SpecError(
            f"score failed ({type(error).__name__}: {in_one_line(error)}): it is called with the "
            "model's output and the batch, and returns a number for each text; a function of true "
            "and predicted classes is metric= of papa.Task, for a probe"
        ) from error
    texts = {len(value) for value in inputs.values() if isinstance(value, Tensor) and value.dim()}
    problem = "" if scores.isfinite().all() else "NaN or infinity"
    if scores.dim() != 1 or (texts and len(scores) not in texts):
        problem = f"a tensor of shape {list(scores.shape)}"
    if problem:
        raise DataError(
            f"score returned {problem}, expected a finite number for each text of the batch: a "
            "tensor [texts]"
        )
    return {"score": scores, "lengths": torch.ones(len(scores), dtype=torch.int64)}


def _embeddings(
    model: PreTrainedModel, states: Float[Tensor, "texts tokens width"], batch: Batch
) -> Answers:
    """Return the means of the last hidden states over tokens."""
    real = real_of(model, batch, states)[:, :, None]
    states = at_least_single(states)  # A sum of half precision may overflow.
    lengths = torch.ones(len(states), dtype=torch.int64)
    return {"embeddings": (states * real).sum(1) / real.sum(1), "lengths": lengths}


def _answers_by_label(logits: Float[Tensor, "texts labels"]) -> Answers:
    """Return each label of each text as an answer of two classes, without it and with it, whose
    softmax is the label's sigmoid.
    """
    by_label = torch.stack([torch.zeros_like(logits), logits], dim=-1)
    lengths = torch.full((len(logits),), logits.shape[1])
    return {"logits": by_label.flatten(0, 1), "lengths": lengths}


def _words(
    model: PreTrainedModel, logits: Float[Tensor, "texts tokens vocabulary"], batch: Batch
) -> Answers:
    """Return the words at each token that counts: in a causal model tokens that have a next one, in
    an encoder-decoder those of the decoder.
    """
    targets = batch.labels
    if targets is not None:
        counted = targets != IGNORED
    elif getattr(model.config, "is_encoder_decoder", False):
        # The mask is of the encoder's tokens, and labels stand where they are answered.
        mask = batch.inputs.get("decoder_attention_mask")
        counted = torch.ones_like(logits[..., 0], dtype=torch.bool) if mask is None else mask.bool()
        targets = batch.inputs.get("labels")
        if targets is not None:
            counted = counted & (targets != IGNORED)
    else:
        counted = real_of(model, batch, logits)
        targets = batch.inputs.get("labels")
        if model.can_generate():
            targets = batch.inputs.get("input_ids") if targets is None else targets
            targets = None if targets is None else targets[:, 1:]
            logits = logits[:, :-1]
            counted = counted[:, 1:] & counted[:, :-1]
        if targets is not None:
            counted = counted & (targets != IGNORED)
    words = logits[counted]
    answers = {"words": words, "top": words.argmax(-1), "lengths": counted.sum(1)}
    if targets is not None:
        losses = nn.functional.cross_entropy(words.float(), targets[counted], reduction="none")
        answers["log_probabilities"] = -losses
    return answers


def check_means(model: PreTrainedModel) -> None:
    """Raise an error if sentence-transformers computes other embeddings than means over tokens of a
    model of a folder or of the hub.
    """
    name = model.name_or_path or ""
    commit: str | None = getattr(model.config, "_commit_hash", None)
    folder = Path(name)
    if commit is not None and not folder.is_dir():
        with suppress(HubUnreachableError):
            folder = _embedding_files(name, commit)
    other_embeddings = embeds_by(folder) if name and folder.is_dir() else None
    if other_embeddings:
        raise EncoderError(
            f"the model of {name}: {other_embeddings}, and PAPA measures means over tokens of "
            "its texts as they are: measure its own embeddings in your loop, with "
            "papa.ablated, or give score="
        )


@lru_cache(maxsize=16)
def _embedding_files(name: str, commit: str) -> Path:
    """Return the folder of the files by which sentence-transformers embeds, fetched once."""
    return fetched(name, commit, f"the model '{name}'", EMBEDDING, EncoderError)
