"""A score for every head, in one frame by any method; and the heads that become constant by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas
from torch import nn

from papa.errors import SpecError, meant
from papa.library.ablating import substitute_for
from papa.library.constants import given_step
from papa.library.encoder import TextEncoder, check_loaded
from papa.library.fidelity import batches_of
from papa.library.measuring import run_steps
from papa.library.own_scores import effects, trained_lambda
from papa.library.tasks import Task, as_list, study_inputs
from papa.ranking.given import score_of_each
from papa.ranking.seeds import HeadScores
from papa.scores.own import OwnScore
from papa.spec.cells import constant_heads as first_heads
from papa.spec.head_scores import read_scores
from papa.spec.methods import HEAD_SCORES
from papa.spec.orders import Head, head_order
from papa.storage.store import Store
from papa.study.stages.rank import read_head_scores
from papa.study.step import with_needs
from papa.study.steps import study_steps


def head_scores(
    model: TextEncoder | nn.Module,
    data: Any,
    task: Task | None = None,
    *,
    by: str = "lambda",
    constants: Any = "average",
    rows: int | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    evaluations: int = 2_000,
    seeds: Sequence[int] = (0, 1, 2),
    made_from: Iterable[Mapping[str, Any]] | None = None,
    score: OwnScore | None = None,
    progress: bool = True,
) -> pandas.DataFrame:
    """A score for every head: the smallest is of the head that is missed least.

    Of what ``load_encoder`` gives, on the training split, as a study has them to the bit: "lambda"
    (paper, Section 3.2), "gradient" and "effect" (Michel et al., 2019), "shapley" (Held & Yang,
    2022), "greedy", "gates" (Voita et al., 2019); without labels "confidence", "variance",
    "distance", "output_distance", "self_lambda" (docs/method.md).

    Of any other model, by its own answers, without labels: "effect", what is lost with one head
    alone replaced (``attrs["measure"]``: the loss of a language model, the divergence of other
    logits, both in nats, or the agreement of masked words without ``labels``; 1 - the cosine of
    mean-pooled embeddings; what ``score`` falls); and "lambda", trained to keep that small.

    Examples:
        >>> import papa, torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2)).eval()
        >>> batch = {"input_ids": torch.tensor([[3, 5, 7, 5], [2, 2, 4, 9]])}
        >>> scores = papa.head_scores(model, [batch], by="effect", progress=False)
        >>> scores.columns.tolist(), len(scores)
        (['layer', 'head', 'method', 'score', 'low', 'high'], 4)
        >>> len(papa.constant_heads(scores, fraction=0.5))
        2

    Args:
        model: from ``load_encoder``, with data and task as for ``measure``; or one that you hold,
            with data as for ``fidelity``.
        by: the method.
        constants: as for ``replaced``, or as ``by`` of ``ablated``; "average" is over the training
            texts.
        rows: a sample of so many training rows; None takes the method's.
        epochs, learning_rate: of what is trained; None takes the task's, and 3 epochs at 0.05 for
            a model that you hold.
        evaluations: how often "shapley" and "greedy" may value a set of heads.
        seeds: of all that is drawn: the mean over them counts.
        made_from, score: of a model that you hold, as for ``fidelity``.

    Returns:
        A row for every head: layer, head, method, score, and its 95 % interval, low and high: over
        seeds (Student t), of effects over texts; nan where nothing is known.

    Raises:
        ArtifactError, DataError, EncoderError, SpecError: as ``measure`` and ``ablated``.
        NumbersError: a model's answers are NaN or infinite.
    """
    known = ("lambda", "effect") if isinstance(model, nn.Module) else ("lambda", *HEAD_SCORES)
    if by not in known:
        raise SpecError(
            f"there is no head score '{by}' for this model{meant(by, known)}: give one of "
            f"{', '.join(known)}"
        )
    if not isinstance(model, nn.Module):
        if made_from is not None or score is not None:
            raise SpecError("made_from and score are of a model that you hold: leave them out")
        settings: dict[str, Any] = {"rows": rows, "epochs": epochs, "learning_rate": learning_rate}
        settings |= {"evaluations": evaluations, "seeds": as_list(seeds)}
        return _of_study(model, data, task, by, constants, settings, progress)
    if task is not None or rows is not None:
        raise SpecError("task and rows are of what papa.load_encoder gives: leave them out")
    if score is not None and by != "effect":
        raise SpecError(f"score is for by='effect', found by='{by}': leave it out")
    batches = batches_of(model, data)
    texts = batches if made_from is None else made_from
    substitute = substitute_for(model, constants, data=texts, seed=seeds[0])
    if by == "effect":
        return effects(model, batches, substitute, score, progress)
    how = 3 if epochs is None else epochs, 0.05 if learning_rate is None else learning_rate
    trained = [trained_lambda(model, batches, substitute, *how, seed, progress) for seed in seeds]
    return HeadScores(np.stack(trained)).frame(by)


def _of_study(
    encoder: Any,
    data: Any,
    task: Task | None,
    by: str,
    constants: Any,
    settings: Mapping[str, Any],
    progress: bool,
) -> pandas.DataFrame:
    """The scores that a study's order by the method follows."""
    check_loaded(encoder, decoder=True, whole=True)
    average = isinstance(constants, str) and constants == "average"
    given = None if average else given_step(encoder, constants)
    parts = {"constants": ["zeros"], "orders": [by], "fractions": [0.5], "ranking": settings}
    with (
        study_inputs(encoder, data, task, sampled={}, **parts) as inputs,
        TemporaryDirectory(prefix="papa-") as folder,
    ):
        (part,) = study_steps(inputs).parts
        rankings = {
            seed: step.changed(constants=given) if given else step
            for seed, step in part.rankings[by].items()
        }
        steps = with_needs(rankings.values())
        found = run_steps(steps, Store(folder), encoder, inputs, progress)
        by_seed = {seed: found[step] for seed, step in rankings.items()}
        return read_head_scores(by, by_seed, encoder.reference).frame(by)


def constant_heads(
    scores: Any, fraction: float | None = None, *, count: int | None = None
) -> tuple[Head, ...]:
    """The heads that become constant first, those with the smallest scores; ties by layer and head.

    Examples:
        >>> import papa, torch
        >>> papa.constant_heads(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), fraction=0.5)
        ((0, 1), (1, 0))

    Args:
        scores: a frame as ``head_scores`` gives it, by one method; or numbers [layers, heads].
        fraction: the share of heads that keep their own attention, 0..1.
        count: or how many heads become constant.

    Raises:
        SpecError: the scores are no such frame, or the number of heads is impossible.
    """
    numbers = score_of_each(scores)
    if (fraction is None) == (count is None):
        raise SpecError("give fraction, the share of heads that keep their attention, or count")
    if fraction is not None and not 0 <= fraction <= 1:
        raise SpecError(f"fraction is {fraction}, expected the share of heads that stay: 0 to 1")
    if count is not None and count not in range(numbers.size + 1):
        raise SpecError(f"count is {count}, expected how many of the {numbers.size} heads")
    order = head_order("lambda", numbers, *numbers.shape)
    return tuple(order[:count]) if fraction is None else first_heads(order, fraction)


def load_scores(
    path: str | Path, *, layers: int | None = None, heads: int | None = None
) -> pandas.DataFrame:
    """A score for every head from somebody's file, as ``head_scores`` gives them.

    A file holds a line for each layer with a number for each head (DuoAttention's
    ``full_attention_heads.tsv``), JSON with a list of scores under each ``"layer-head"``, of which
    the mean counts (Retrieval_Head's ``head_score``), or JSON with a list of heads under each layer
    (what ``prune_heads`` took): those get 0 and all others 1.

    Examples:
        >>> import papa, tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "scores.json"
        >>> _ = file.write_text('{"0-0": [0.5, 0.7], "0-1": [0.1]}')
        >>> papa.constant_heads(papa.load_scores(file), fraction=0.5)
        ((0, 1),)

    Args:
        layers, heads: how many it must hold; a list of heads needs them, as it names only some.

    Raises:
        DataError: the file is something else, or a head has no finite score.
    """
    scores = read_scores(path, layers=layers, heads=heads)
    return HeadScores(np.array(scores)[None]).frame(Path(path).name)
