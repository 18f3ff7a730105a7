"""A small study in one call: the same cells, probes, metrics and intervals as ``papa run`` has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas

from papa.attention.constants import ConstantMatrices
from papa.errors import SpecError
from papa.library.constants import Constants, own_constants
from papa.library.encoder import Decoder, TextEncoder, check_loaded
from papa.library.tasks import LabelledData, Task, as_list, study_inputs
from papa.probes.own_model import check_own
from papa.progress import Bars
from papa.ranking.given import OwnOrder, named_orders
from papa.ranking.seeds import TrainedLambda
from papa.reporting.answers import answers, certainty
from papa.reporting.tables import score_tables
from papa.scores.columns import INFLUENCE_COLUMNS
from papa.scores.own import OwnCode
from papa.scores.summary import summarise
from papa.spec import ConstantsSpec, Order
from papa.storage.artifacts import ArtifactReference
from papa.study.average import Average
from papa.study.constants import Controls, Given, Matrices
from papa.study.here import run_here
from papa.study.inputs import StudyInputs
from papa.study.rank import read_lambda
from papa.study.results import StudyPart, results_table
from papa.study.step import Step
from papa.study.steps import study_steps
from papa.study.store import Store

if TYPE_CHECKING:
    from papa.reporting.drawing import Figure


@dataclass(frozen=True)
class Measurement:
    """The scores of an encoder with more and more of its heads constant.

    Attributes:
        results: a row for every cell and seed, as in ``results.parquet`` (docs/results.md).
        lambdas: λ of every head by seed, and what of it can be told from chance; None where no
            order needs it.
        constants: the constant matrices by kind, with its parameters.
    """

    results: pandas.DataFrame
    lambdas: TrainedLambda | None
    constants: Mapping[str, ConstantMatrices]

    @property
    def summary(self) -> pandas.DataFrame:
        """A row for every cell: score and relative drop with their intervals, and baselines
        (docs/results.md).
        """
        return summarise(self.results)

    @property
    def table(self) -> str:
        """Scores, drops and baselines as Markdown."""
        written = score_tables(self.summary)
        if len(written) == 1:
            return written[0].markdown
        return "\n".join(f"{table.heading}\n\n{table.markdown}" for table in written)

    @property
    def answers(self) -> list[str]:
        """What was found, in sentences."""
        fractions = list(self.summary["fraction"].unique())
        return answers(self.summary) + (
            [certainty(self.lambdas.facts(fractions))] if self.lambdas else []
        )

    def plot(self) -> Figure:
        """Score against the share of heads that stay input-dependent, with 95 % intervals (paper,
        Figure 2).
        """
        from papa.reporting.figures import scores_figure

        return scores_figure(self.summary)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every cell and seed."""
        return self.results.drop(columns=list(INFLUENCE_COLUMNS))

    def __str__(self) -> str:
        return "\n".join([*self.answers, "", self.table])

    _repr_markdown_ = __str__


def measure(
    encoder: TextEncoder | Decoder,
    dataset: LabelledData,
    task: Task | None = None,
    *,
    constants: Sequence[Constants | Mapping[str, Any]] = ("average",),
    orders: Sequence[Order | OwnOrder] = ("lambda",),
    fractions: Sequence[float] = (1.0, 0.5, 0.125, 0.0625, 0.0),
    seeds: Sequence[int] = (0, 1, 2),
    train_rows: int | None = None,
    validation_rows: int | None = None,
    ranking_rows: int | None = None,
    ranking_seeds: Sequence[int] = (0, 1, 2),
    store: str | Path | None = None,
    progress: bool = True,
) -> Measurement:
    """How far an encoder's score falls as its heads become constant: a study in one call, in this
    process.

    The scores are those of ``papa run`` for a study of the same encoder, rows, slots and seeds, to
    the bit: like each of its workers, this computes with one thread.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> data = {"text": ["good", "bad", "fine", "poor"], "label": ["yes", "no", "yes", "no"]}
        >>> found = papa.measure(
        ...     encoder,
        ...     {"train": data, "validation": data},
        ...     fractions=[1, 0],
        ...     orders=["first_to_last"],
        ...     seeds=[0, 1],
        ...     progress=False,
        ... )
        >>> found.to_pandas()[["fraction", "constant_heads", "seed"]].values.tolist()
        [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0], [0.0, 72.0, 0.0], [0.0, 72.0, 1.0]]

    Args:
        encoder: frozen; or a decoder of ``papa.load_decoder``, which is asked for the next word by
            its own head: ``papa.Task(label=None, metric="negative_log_perplexity", head="own")``.
        dataset: a task's name, or data sets, data frames or mappings of columns under ``train`` and
            ``validation``.
        task: which columns hold what; None takes ``text`` and ``label``.
        constants: kinds of constants as a study names them (docs/method.md): ``average``,
            ``local``, or with parameters ``{"kind": "local", "window": 3}``; or matrices of one's
            own, as ``replaced`` takes them, which tables call ``own``, ``own-2``, ….
        orders: in which heads become constant: names, or orders of one's own, which tables call
            ``scores:own``, ``scores:own 2``, …: a list of heads, or a score for every head, the
            smallest first, as an array [layers, heads] or a function of (layer, head).
        fractions: shares of heads that stay input-dependent.
        seeds: a probe for each.
        train_rows: a sample of that many training rows; None takes all.
        validation_rows: likewise of validation rows.
        ranking_rows: heads are scored on a sample of this many training rows; None takes all.
        ranking_seeds: λ is trained once with each; heads become constant by its mean.
        store: a folder or address where what is computed is kept and found again, by ``papa run``
            too; None keeps nothing.
        progress: whether to show bars.

    Raises:
        ArtifactError: the store cannot be used, or matrices do not fit the encoder.
        DataError: a split or a column is missing, or a row does not fit the task.
        SpecError: a value is impossible, or training diverged.
    """
    loaded = {}
    if not isinstance(encoder, Decoder):
        check_loaded(encoder)
        encoder.check_whole()
        loaded[encoder.reference] = encoder.encoder
    if store is not None and not encoder.reference.folder:
        raise SpecError(
            f"the encoder {encoder.reference.name} is held in memory, and results in a store are "
            "known by the files they were computed from: save it and load it by its folder, or "
            "leave store out"
        )
    kinds, own = own_constants(encoder, constants)
    parts = {
        "constants": [one for one in kinds if not isinstance(one, ConstantsSpec)] or ["zeros"],
        **named_orders(orders, encoder.layers, encoder.heads),
        "fractions": as_list(fractions),
        "seeds": as_list(seeds),
        "ranking": {"rows": ranking_rows, "seeds": as_list(ranking_seeds)},
    }
    sampled = {"train_rows": train_rows, "validation_rows": validation_rows}
    with (
        study_inputs(encoder, dataset, task, sampled=sampled, **parts) as inputs,
        nullcontext(store) if store is not None else TemporaryDirectory(prefix="papa-") as folder,
    ):
        (spec,) = inputs.study.tasks
        if own:
            named = iter(inputs.study.constants)
            every = tuple(
                kind if isinstance(kind, ConstantsSpec) else next(named) for kind in kinds
            )
            study = inputs.study.model_copy(update={"constants": every})
            inputs = replace(inputs, study=study, matrices=own)
        for code in inputs.code.values():
            _check_code(code, inputs, store)
        if spec.head == "own":
            check_own(spec, encoder.reference, None, None)
        opened, found = Store(folder), study_steps(inputs)
        opened.make()
        steps = found.steps[:-1]
        run_here(steps, opened, inputs.study.execution, Bars(progress), loaded)
        return _measurement(found.parts[0], {step: step.reference(opened) for step in steps})


def _check_code(code: OwnCode, inputs: StudyInputs, store: str | Path | None) -> None:
    trained = [constants.kind for constants in inputs.study.constants if constants.is_trained]
    if code.probe is not None and trained:
        raise SpecError(
            f"constants: {trained[0]} ones are trained with PAPA's own probe: leave them out, or "
            "the task's probe"
        )
    if store is not None and code.digest is None:
        raise SpecError(
            "the task has code of your own that no module's file holds, and results in a store are "
            "known by what they were computed with: put it at the top of a module that you import, "
            "or leave store out"
        )


def _measurement(part: StudyPart, found: Mapping[Step, ArtifactReference]) -> Measurement:
    """What the finished steps of a study on one task say."""
    results = results_table([part], found)
    rankings = {seed: found[step] for seed, step in part.rankings.get("lambda", {}).items()}
    constants = {}
    for step, artifact in found.items():
        if isinstance(step, Matrices):
            matrices = ConstantMatrices.load(artifact.folder, encoder=part.encoder)
            digest = None if isinstance(step, Controls | Given) else part.encoder.digest
            parameters = getattr(step, "parameters", {})
            name = ":".join([matrices.kind, *map(str, parameters.values())])
            if isinstance(step, Average | Given):
                name = next((label for label, own in part.constants.items() if own == step), name)
            constants[name] = replace(matrices, encoder_digest=digest)
    return Measurement(results, read_lambda(rankings) if rankings else None, constants)
