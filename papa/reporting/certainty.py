"""What several seeds tell of λ and of the head order that it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from papa.ranking.seeds import TrainedLambda, stability
from papa.reporting.wording import NOTHING, WrittenTable, chance_label, fraction_label
from papa.spec import TaskSpec
from papa.spec.cells import partial_counts

_BETWEEN_SEEDS = (
    "λ told from .5: of how many heads the 95 % interval over seeds (Student t) leaves .5 out. "
    "Kendall's τ of the orders and the share of constant heads in common are means over pairs of "
    "seeds; brackets hold what random orders share. ?: it cannot be told from chance at 5 %. Of "
    "one seed nothing is known."
)
_LAST_EPOCH = (
    "How alike the orders are, and the share of constant heads that stayed; brackets hold what "
    "random orders share."
)


def certainty(lambdas: TrainedLambda, fractions: Sequence[float]) -> str:
    """In sentences, whether the order and its constant heads can be told from chance."""
    found = lambdas.agreement(fractions)
    if found is None or not found.told or not found.shared:
        return str(lambdas)
    shares = (
        f"{100 * shared.share:.0f} % at {fraction_label(fraction)} (by chance "
        f"{100 * shared.by_chance:.0f} %{'' if shared.told else ', from which it cannot be told'})"
        for fraction, shared in found.shared.items()
    )
    return f"{lambdas} Of the constant heads two seeds share {', '.join(shares)}."


def trained_on(task: TaskSpec) -> str:
    """A sentence on what λ was trained on, where that was no probe; else ""."""
    return "" if task.head == "probe" else f" λ was trained on {task.lambda_objective}: no probe."


def agreement_table(
    lambdas: Mapping[tuple[str, str], TrainedLambda], fractions: Sequence[float]
) -> WrittenTable:
    """How alike the orders of the seeds are, for each encoder and task; of one seed nothing is
    known.
    """
    rows, partial = [], _partial(lambdas, fractions)
    for (encoder, task), trained in lambdas.items():
        found = trained.agreement(fractions)
        told, tau, alike = NOTHING, NOTHING, {}
        if found:
            told = f"{trained.told.sum()} of {trained.told.size}"
            tau = f"{found.kendall_tau:.2f}{'' if found.told else ' ?'}"
            alike = {
                at: f"{chance_label(each.share, each.by_chance)}{'' if each.told else ' ?'}"
                for at, each in found.shared.items()
            }
        rows.append(
            {
                "Encoder": encoder,
                "Task": task,
                "Seeds": str(len(trained.by_seed)),
                "λ told from .5": told,
                "Kendall's τ": tau,
                **{f"Shared at {fraction_label(at)}": alike.get(at, NOTHING) for at in partial},
            }
        )
    return WrittenTable.of("Head order by λ, between seeds", rows, _BETWEEN_SEEDS)


def stability_table(
    lambdas: Mapping[tuple[str, str], TrainedLambda], fractions: Sequence[float]
) -> WrittenTable:
    """How long λ was trained for each encoder, task and seed, and what the end still changed."""
    rows, partial = [], _partial(lambdas, fractions)
    for (encoder, task), trained in lambdas.items():
        counts = partial_counts(fractions, trained.mean.size)
        for seed, epochs in trained.by_epoch.items():
            found = stability(epochs, fractions)
            kept = {
                at: chance_label(share, counts[at] / trained.mean.size)
                for at, share in found.kept.items()
            }
            tau = NOTHING if found.kendall_tau is None else f"{found.kendall_tau:.2f}"
            rows.append(
                {
                    "Encoder": encoder,
                    "Task": task,
                    "Seed": str(seed),
                    "Epochs": str(found.epochs),
                    "Kendall's τ": tau,
                    **{f"Kept at {fraction_label(at)}": kept.get(at, NOTHING) for at in partial},
                }
            )
    return WrittenTable.of("Head order by λ, between the last two epochs", rows, _LAST_EPOCH)


def _partial(
    lambdas: Mapping[tuple[str, str], TrainedLambda], fractions: Sequence[float]
) -> list[float]:
    """The fractions at which some head of some encoder is constant and another is not."""
    counts = [partial_counts(fractions, trained.mean.size) for trained in lambdas.values()]
    return [fraction for fraction in fractions if any(fraction in own for own in counts)]
