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
from papa.library.encoder import TextEncoder, check_loaded
from papa.library.tasks import LabelledData, Task, as_list, study_inputs
from papa.progress import Bars
from papa.ranking.given import OwnOrder, named_orders
from papa.ranking.seeds import TrainedLambda
from papa.reporting.answers import answers, certainty
from papa.reporting.tables import score_tables
from papa.scores.drops import heads_at
from papa.scores.own import OwnCode
from papa.scores.summary import INFLUENCE, summarise
from papa.spec import ConstantsSpec, Order
from papa.spec.orders import Head
from papa.storage.artifacts import ArtifactReference
from papa.storage.store import Store
from papa.study.inputs import StudyInputs
from papa.study.results import StudyPart, results_table
from papa.study.run import run_here
from papa.study.stages.constants import Constants as Kind
from papa.study.stages.probe import read_scores
from papa.study.step import Step
from papa.study.steps import study_steps

if TYPE_CHECKING:
    from papa.reporting.drawing import Figure


@dataclass(frozen=True)
class Measurement:
    """The scores of an encoder with more and more of its heads constant.

    Attributes:
        results: a row for every cell and seed, as in ``results.parquet`` (docs/results.md).
        head_scores: the scores of heads that orders followed, as ``papa.head_scores`` gives them;
            a method after the other.
        constants: the constant matrices by kind, with its parameters.
        certainty: whether an order by λ can be told from chance, in sentences; "" without one.
        constant_heads: of each (constants, order, fraction); None where each seed has others.
    """

    results: pandas.DataFrame
    head_scores: pandas.DataFrame
    constants: Mapping[str, ConstantMatrices]
    certainty: str
    constant_heads: Mapping[tuple[str, str, float], tuple[Head, ...] | None]

    @property
    def summary(self) -> pandas.DataFrame:
        """A row for every cell: score and drop with intervals, and baselines (docs/results.md)."""
        return summarise(self.results)

    @property
    def table(self) -> str:
        """Scores, drops and baselines as Markdown."""
        tables = score_tables(self.summary)
        return "\n".join(f"{table.heading}\n\n{table.markdown}" for table in tables)

    @property
    def answers(self) -> list[str]:
        """What was found, in sentences."""
        return [*answers(self.summary), *filter(None, [self.certainty])]

    def heads(self, max_drop: float = 0.01) -> pandas.DataFrame:
        """Which heads may become constant within a relative drop of the score, as ``papa heads``
        answers it: a row for every number of them, with the drop and its 95 % interval, the verdict
        ("within", "undecided" or "beyond"), the reason where nothing can be told, and the heads.
        """
        found = heads_at(self.summary, {}, max_drop).drop(columns=["encoder", "task"])
        cells = found[["constants", "order", "fraction"]].itertuples(index=False, name=None)
        return found.assign(heads=[self.constant_heads[cell] for cell in cells])

    def plot(self) -> Figure:
        """Score against the share of heads that stay input-dependent (paper, Figure 2)."""
        from papa.reporting.figures import scores_figure

        return scores_figure(self.summary)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every cell and seed."""
        return self.results.drop(columns=INFLUENCE)

    def __str__(self) -> str:
        return "\n".join([*self.answers, "", self.table])

    _repr_markdown_ = __str__


def measure(
    encoder: TextEncoder,
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

    The scores are those of ``papa run`` for the same study, to the bit: like each of its workers,
    this computes with one thread.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> data = {"text": ["good", "bad", "fine", "poor"], "label": ["yes", "no", "yes", "no"]}
        >>> design = {"orders": ["first_to_last"], "fractions": [1, 0], "seeds": [0, 1]}
        >>> splits = {"train": data, "validation": data}
        >>> found = papa.measure(encoder, splits, **design, progress=False)
        >>> found.to_pandas()[["fraction", "constant_heads", "seed"]].values.tolist()
        [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0], [0.0, 72.0, 0.0], [0.0, 72.0, 1.0]]

    Args:
        dataset: a task's name, or data sets, data frames or mappings of columns under ``train`` and
            ``validation``.
        task: which columns hold what; None takes ``text`` and ``label``. A decoder's is
            ``papa.Task(label=None, metric="negative_log_perplexity", head="own")``.
        constants: kinds as a study names them (docs/method.md): ``average``, or with parameters
            ``{"kind": "local", "window": 3}``; or matrices as ``replaced`` takes them, which
            tables call ``own``, ``own-2``, ….
        orders: names, or orders of one's own, which tables call ``scores:own``, ``scores:own 2``,
            …: a list of heads, or scores as ``constant_heads`` takes them or as a function of
            (layer, head), the smallest first.
        fractions: shares of heads that stay input-dependent; [1] scores the encoder as it is.
        seeds: a probe for each.
        train_rows, validation_rows, ranking_rows: a sample of so many rows, the last of those that
            heads are scored on; None takes all.
        ranking_seeds: λ is trained once with each; heads become constant by its mean.
        store: a folder or address that keeps what is computed, also for ``papa run``.

    Raises:
        ArtifactError: the store cannot be used, or matrices do not fit the encoder.
        DataError: a split or a column is missing, or a row does not fit the task.
        EncoderError: the model has no such head of its own, or is held in memory.
        SpecError: a value is impossible, or training diverged.
    """
    check_loaded(encoder, decoder=True, whole=True)
    if store is not None and not encoder.reference.folder:
        raise SpecError(
            f"the encoder {encoder.reference.name} is held in memory, and a store knows encoders "
            "by their files: save it and load it by its folder, or leave store out"
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
        if own:
            named = iter(inputs.study.constants)
            every = tuple(
                kind if isinstance(kind, ConstantsSpec) else next(named) for kind in kinds
            )
            study = inputs.study.model_copy(update={"constants": every})
            inputs = replace(inputs, study=study, matrices=own)
        for code in inputs.code.values():
            _check_code(code, inputs, store)
        steps = study_steps(inputs)
        found = run_steps(steps.steps[:-1], Store(folder), encoder, inputs, progress)
        return _measurement(steps.parts[0], found, inputs)


def run_steps(
    steps: Sequence[Step], store: Store, encoder: TextEncoder, inputs: StudyInputs, progress: bool
) -> dict[Step, ArtifactReference]:
    """Run a study's steps with the encoder that is loaded; gives the artifact of each."""
    store.make()
    loaded = {encoder.reference: encoder.running} if encoder.running else {}
    run_here(steps, store, inputs.study.execution, Bars(progress), loaded)
    return {step: step.reference(store) for step in steps}


def _check_code(code: OwnCode, inputs: StudyInputs, store: str | Path | None) -> None:
    for constants in inputs.study.constants:
        if code.probe is not None and constants.is_trained:
            raise SpecError(
                f"constants: {constants.kind} ones are trained with PAPA's own probe: leave them "
                "out, or the task's probe"
            )
    if store is not None and code.digest is None:
        raise SpecError(
            "the task has code that no module's file holds, by which a store knows it: put it at "
            "the top of a module that you import, or leave store out"
        )


def _measurement(
    part: StudyPart, found: Mapping[Step, ArtifactReference], inputs: StudyInputs
) -> Measurement:
    """What the finished steps of a study on one task say."""
    scores = part.head_scores(found)
    frames = [one.frame(method) for method, one in scores.items()]
    trained = scores.get("lambda")
    sure = ""
    if isinstance(trained, TrainedLambda):
        sure = certainty(trained.facts(inputs.study.fractions))
    heads = {}
    for cell, steps in part.cells.items():
        own = {read_scores(found[step]).constant_heads for step in steps}
        heads[cell.constants, cell.order, cell.fraction] = own.pop() if len(own) == 1 else None
    constants = {}
    ranked = [step for by_seed in part.rankings.values() for step in by_seed.values()]
    kinds = {"average": Kind("average", source=ranked[0]["constants"])} if ranked else {}
    for label, kind in {**kinds, **part.constants}.items():
        held = kind.read(found, part.encoder, part.task)
        if isinstance(held, ConstantMatrices):
            averaged = kind.source is not None and kind.source.stage != "given"
            digest = part.encoder.digest if averaged else None
            # Trained ones are not kept, but what they were trained from.
            name = label if label.partition(":")[0] == kind.kind else kind.kind
            constants[name] = replace(held, encoder_digest=digest)
    return Measurement(
        results_table([part], found),
        pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(),
        constants,
        sure,
        heads,
    )
