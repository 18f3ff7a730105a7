"""What a model that the user holds keeps of its own answers while heads of it are replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas
import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.errors import DataError
from papa.library.ablating import Heads, ablated, batches_of, substitute_for
from papa.scores.fidelity import LEAST_SENTENCES, embedding_fidelity, mean_over_examples
from papa.scores.own import OwnScore, checked_score


def fidelity(
    model: nn.Module,
    heads: Heads,
    by: Any = "zeros",
    *,
    data: Iterable[Mapping[str, Any]],
    made_from: Iterable[Mapping[str, Any]] | None = None,
    score: OwnScore | None = None,
    seed: int = 0,
) -> pandas.DataFrame:
    """How alike the answers of the user's model are with heads replaced, in its own use; no labels
    are needed.

    What is measured follows from what the model puts out. Hidden states: of mean-pooled embeddings
    the cosine to their own, Spearman's correlation of similarities, and nearest neighbours kept.
    Logits of a classifier, one answer a text or a token: agreement and divergence. Logits of a
    language model: agreement of the top token, divergence, and the loss: of the next token, or of a
    masked one where ``labels`` say which tokens count.

    Examples:
        >>> papa.fidelity(model, [(0, 1)], data=batches).index.tolist()
        ['agreement', 'divergence', 'loss_before', 'loss_after', 'loss_difference']

    Args:
        by: as for ``ablated``; the model is in eval mode.
        seed: as for ``ablated``.
        made_from: other batches, for a ``by`` that is made from text: the fairer test.
        score: a task of your own instead: called with what the model puts out and the batch, it
            gives a number for each text, the larger the better.

    Returns:
        A row for every measure: value, and its 95 % interval over texts, low and high;
        ``attrs["texts"]`` counts them. Losses and divergences are in nats.
    """
    batches = batches_of(data, model)
    substitute = substitute_for(model, by, data=made_from or batches, seed=seed)
    pairs: list[tuple[dict[str, Tensor], dict[str, Tensor]]] = []
    with torch.inference_mode():
        for inputs in batches:
            own = of_batch(model, inputs, score)
            with ablated(model, heads, substitute):
                replaced = of_batch(model, inputs, score)
            if "words" in own:
                replaced["divergence"] = kl_divergence(own.pop("words"), replaced.pop("words"))
            pairs.append((own, replaced))
    before, after = (_together(side) for side in zip(*pairs, strict=True))
    lengths = before["lengths"]
    if "embeddings" in before:
        if len(lengths) < LEAST_SENTENCES:
            raise DataError(f"data holds {len(lengths)} texts, expected {LEAST_SENTENCES} or more")
        found = embedding_fidelity(before["embeddings"], after["embeddings"])
    else:
        values = compared(before, after)
        found = {name: mean_over_examples(name, own, lengths) for name, own in values.items()}
    rows = {name: (one.mean, one.low, one.high) for name, one in found.items()}
    frame = pandas.DataFrame.from_dict(rows, "index", columns=["value", "low", "high"])
    frame.attrs["texts"] = len(lengths)
    return frame.rename_axis("measure")


def compared(
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What answers without embeddings differ in, by measure: a number for each answer."""
    if not before["lengths"].sum():
        raise DataError(
            "data holds no token that counts: give longer texts, or labels that are not all -100"
        )
    values: dict[str, np.ndarray] = {}
    if "logits" in before:
        logits = [torch.from_numpy(side["logits"]) for side in (before, after)]
        values["agreement"] = before["logits"].argmax(1) == after["logits"].argmax(1)
        values["divergence"] = kl_divergence(*logits).numpy()
    elif "top" in before:
        values["agreement"] = before["top"] == after["top"]
        if "divergence" in after:
            values["divergence"] = after["divergence"]
    for name in ("loss", "score"):
        if name in before:
            values |= {f"{name}_before": before[name], f"{name}_after": after[name]}
            values[f"{name}_difference"] = after[name] - before[name]
    return values


@torch.inference_mode()
def answers(
    model: nn.Module, batches: Sequence[Mapping[str, Any]], score: OwnScore | None = None
) -> dict[str, np.ndarray]:
    """``of_batch`` of all batches, without the logits of words."""
    found = []
    for inputs in batches:
        found.append(of_batch(model, inputs, score))
        found[-1].pop("words", None)
    return _together(found)


def _together(found: Sequence[Mapping[str, Tensor]]) -> dict[str, np.ndarray]:
    if any(batch.keys() != found[0].keys() for batch in found):
        raise DataError("some batches of data have labels: give labels with every batch, or none")
    return {
        name: np.concatenate([batch[name].cpu().float().numpy() for batch in found])
        for name in found[0]
    } | {"lengths": np.concatenate([batch["lengths"].cpu().numpy() for batch in found])}


def kl_divergence(
    before: Float[Tensor, "answers classes"], after: Float[Tensor, "answers classes"]
) -> Float[Tensor, " answers"]:
    """Of the answers after from those before, in nats, from logits; gradients pass."""
    first, second = before.float().log_softmax(-1), after.float().log_softmax(-1)
    return nn.functional.kl_div(second, first, reduction="none", log_target=True).sum(-1)


def of_batch(
    model: Any, inputs: Mapping[str, Any], score: OwnScore | None = None
) -> dict[str, Tensor]:
    """What a model says to one batch: ``lengths``, the answers of each text, and ``score``,
    ``embeddings``, ``logits`` of classes, or ``words``, a language model's logits at each token
    that counts, their ``top``, and ``loss`` where the true token is known.
    """
    outputs = model(**inputs)
    if score is not None:
        own = checked_score(score(outputs, inputs))
        return {"score": own, "lengths": torch.ones(len(own), dtype=torch.int64)}
    logits = getattr(outputs, "logits", None)
    states: Any = getattr(outputs, "last_hidden_state", None)
    if states is None if logits is None else logits.shape[-1] < 2:
        raise DataError(
            f"the model puts out {type(outputs).__name__}, without logits of two classes or more "
            "or last_hidden_state: give score="
        )
    if logits is None:
        real = _real(model, inputs, states)[:, :, None]
        one = torch.ones(len(states), dtype=torch.int64)
        return {"embeddings": (states * real).sum(1) / real.sum(1), "lengths": one}
    if logits.dim() == 2:
        return {"logits": logits, "lengths": torch.ones(len(logits), dtype=torch.int64)}
    real = _real(model, inputs, logits)
    if model.get_output_embeddings() is None:
        return {"logits": logits[real], "lengths": real.sum(1)}
    labels = inputs.get("labels")
    if model.can_generate():
        labels = inputs.get("input_ids") if labels is None else labels
        logits, real = logits[:, :-1], real[:, 1:] & real[:, :-1]
        labels = None if labels is None else labels[:, 1:]
    if labels is not None:
        real = real & (labels != -100)
    words = logits[real]
    found = {"words": words, "top": words.argmax(-1), "lengths": real.sum(1)}
    if labels is not None:
        found["loss"] = nn.functional.cross_entropy(words.float(), labels[real], reduction="none")
    return found


def _real(model: Any, inputs: Mapping[str, Any], outputs: Tensor) -> Tensor:
    """Which tokens, or frames of sound, are no padding: bool [texts, tokens]."""
    mask = inputs.get("attention_mask")
    if mask is None:
        return outputs.new_ones(outputs.shape[:2], dtype=torch.bool)
    if mask.shape[1] != outputs.shape[1] and hasattr(model, "_get_feature_vector_attention_mask"):
        mask = model._get_feature_vector_attention_mask(outputs.shape[1], mask)
    return mask.bool().to(outputs.device)
