"""Head scores by the methods of other papers, for orders of one's own."""

from __future__ import annotations

from papa.errors import SpecError, nearest_first
from papa.library.constants import Constants, constants_for
from papa.library.encoder import TextEncoder, check_loaded
from papa.library.tasks import LabelledData, Task, prepared
from papa.progress import bar
from papa.ranking.scores.asked import Asked, Scored
from papa.ranking.scores.streamed import scores_by
from papa.spec.methods import HEAD_SCORES, check_evaluations, no_score_of_own


def score_heads(
    encoder: TextEncoder,
    constants: Constants,
    dataset: LabelledData,
    task: Task | None = None,
    *,
    by: str = "shapley",
    rows: int | None = None,
    evaluations: int = 2_000,
    epochs: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Scored:
    """A score for every head, from the training split alone; the smallest become constant first.

    ``shapley`` and ``greedy`` value a set of heads by the loss of a probe that was trained on the
    encoder as it is, while all other heads are constant; ``effect`` those with one head constant.
    ``gates`` trains a gate for every head together with a probe. ``gradient`` asks how much the
    loss of that trained probe changes as a head is turned down. ``confidence``, ``variance``,
    ``distance`` (to constant), ``output_distance`` and ``self_lambda`` read no labels.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> data = {"text": ["good", "bad", "fine", "poor"], "label": ["yes", "no", "yes", "no"]}
        >>> constants = papa.average(encoder, data["text"], progress=False)
        >>> splits = {"train": data, "validation": data}
        >>> scores = papa.score_heads(
        ...     encoder, constants, splits, by="greedy", evaluations=72, progress=False
        ... )
        >>> scores.values.shape, scores.evaluations  # layers, heads; forward passes over the rows
        ((6, 12), 72)
        >>> len(papa.constant_heads(scores.values, fraction=0.5))
        36

    Args:
        encoder: frozen.
        constants: what heads that are constant use; see ``replaced``.
        dataset: as for ``train_lambda``.
        task: which columns hold what; None takes ``text`` and ``label``.
        by: ``shapley`` (Held & Yang, 2022), ``greedy``, ``gates`` (Voita et al., 2019),
            ``gradient`` or ``effect`` (Michel et al., 2019), ``confidence``, ``variance``,
            ``distance``, ``output_distance`` or ``self_lambda``.
        rows: a sample of that many training rows; None takes 256, for ``gates`` all.
        evaluations: how often ``shapley`` and ``greedy`` may value a set of heads.
        epochs: of ``gates`` and ``self_lambda``; None takes the task's.
        learning_rate: likewise, but for ``self_lambda`` 0.02.
        seed: of all that is drawn.
        progress: whether to show a bar.

    Returns:
        ``values``, their ``standard_error`` (of Shapley values), and ``evaluations``: forward
        passes over the rows, gradients counted as one more each.

    Raises:
        ArtifactError: the matrices are those of another encoder, or for another number of slots.
        DataError: a split or a column is missing, or a row does not fit the task.
        SpecError: a value is impossible, evaluations are too few, or training diverged.
    """
    check_loaded(encoder)
    encoder.check_whole()
    if by not in HEAD_SCORES:
        raise SpecError(
            f"there is no head score '{by}' (known: {nearest_first(by, HEAD_SCORES)}): give one of "
            "them"
        )
    check_evaluations(by, evaluations, encoder.layers * encoder.heads)
    matrices = constants_for(encoder, constants)
    ranking = {
        "rows": rows,
        "evaluations": evaluations,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "seeds": [seed],
    }
    with prepared(encoder, dataset, task, sampled={}, ranking=ranking) as ready:
        described = ready.study.tasks[0]
        reason = no_score_of_own(by, described.name, with_itself=described.with_itself)
        if described.head == "own" and reason:
            raise SpecError(reason)
        with bar(HEAD_SCORES[by].label, progress) as report:
            found = scores_by(
                [by],
                Asked(
                    encoder.encoder,
                    matrices,
                    ready.corpus,
                    described,
                    ready.study.ranking,
                    seed,
                    ready.folder,
                    ready.study.execution,
                    report,
                ),
            )
    return found[by]
