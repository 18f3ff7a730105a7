"""Stage ``scores``: scores of all heads by a method of ``HEAD_SCORES``; and ``frozen_probe``: the
task's probe on the encoder as it is, which some of them read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.spec import ExecutionSpec, RankingSpec, TaskSpec
from papa.spec.methods import HEAD_SCORES
from papa.storage.artifacts import ArtifactReference, check_form, opened
from papa.study.average import Average
from papa.study.constants import Given
from papa.study.rank import CALL_FLOPS, Rank, read_lambda
from papa.study.step import Context, Session, Step, WorkerStep, identity
from papa.study.store import Store
from papa.study.tokenise import OnText, Tokenise, open_corpus

if TYPE_CHECKING:
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.probes.probes import Probe
    from papa.ranking.scores.asked import Asked
    from papa.ranking.seeds import HeadScores, TrainedLambda
    from papa.ranking.value import Losses

WEIGHTS = "probe.safetensors"
VALUES, ERROR = "scores.safetensors", "{} ± 1"
"""Of a method: its values by its name, their standard error by this."""
_FEWEST = 20
"""Evaluations in a call at least: its first computes all layers."""


@dataclass(frozen=True, eq=False)
class FrozenProbe(OnText, WorkerStep):
    """Train the probe of one seed; the methods that read it share it."""

    stage: ClassVar[str] = "frozen_probe"
    version: ClassVar[int] = 1
    urgency: ClassVar[int] = 2
    loads_encoder: ClassVar[bool] = True

    task: TaskSpec
    seed: int

    def spec(self) -> dict[str, Any]:
        of_task = {"kind", "labels", "slots", "metric", "probe"}
        task = self.task.model_dump(mode="json", include=of_task)
        return {**super().spec(), "task": task, "seed": self.seed}

    def compute(self, encoder: Encoder, context: Context) -> None:
        from safetensors.torch import save_file

        from papa.ranking.scores.asked import trained_probe

        with context.scratch() as scratch:
            probe = trained_probe(
                encoder,
                open_corpus(context.found[self.corpus]),
                self.task,
                self.seed,
                scratch=scratch,
                execution=context.execution,
                progress=context.progress,
            )
        with context.published() as folder:
            save_file(probe.state_dict(), folder / WEIGHTS)

    def read(self, found: ArtifactReference, encoder: Encoder, corpus: TokenisedCorpus) -> Probe:
        """The probe, on the encoder's device."""
        from safetensors.torch import load_file

        from papa.probes.evaluate import build_probe

        probe = build_probe(encoder, corpus, self.task, [self.seed])
        with opened(found, WEIGHTS) as folder:
            probe.load_state_dict(load_file(folder / WEIGHTS))
        return probe.requires_grad_(False).to(encoder.device)


@dataclass(frozen=True, eq=False)
class ScoreHeads(WorkerStep):
    """Score all heads on a task's training text by one method, or by those that share a pass over
    it.

    Attributes:
        values, work: what earlier calls found sets of heads to be worth, and the work of each;
            never part of its key.
    """

    stage: ClassVar[str] = "scores"
    version: ClassVar[int] = 2
    urgency: ClassVar[int] = 1
    loads_encoder: ClassVar[bool] = True

    encoder: EncoderReference
    corpus: Tokenise
    constants: Average | Given
    task: TaskSpec
    ranking: RankingSpec
    methods: tuple[str, ...]
    seed: int
    probe: FrozenProbe | None = None
    values: tuple[float, ...] = ()
    work: tuple[Mapping[str, float], ...] = ()

    def spec(self) -> dict[str, Any]:
        first = HEAD_SCORES[self.methods[0]]
        of_task, own = {"kind", "slots"}, self.task.head == "own" and not first.label_free
        if not first.label_free:
            of_task |= {"labels", "metric", "positive", "head", "probe"}
        if "epochs" in first.reads:
            of_task.add("probe")
        return {
            "encoder": identity(self.encoder),
            "task": self.task.model_dump(mode="json", include=of_task),
            "ranking": self.ranking.model_dump(mode="json", include={"rows", *first.reads}),
            "methods": list(self.methods),
            **({"labelled": self.task.columns.label is not None} if own else {}),
            # Without a sample a pass over the text draws nothing.
            "seed": None if first.streamed and self.ranking.rows is None else self.seed,
        }

    def outside(self) -> dict[str, str]:
        return {"encoder": self.encoder.digest}

    def inputs(self) -> dict[str, Step]:
        probe = {"probe": self.probe} if self.probe else {}
        return {"corpus": self.corpus, "constants": self.constants, **probe}

    def run(self, session: Session, progress: Progress) -> None:
        """Value some sets of heads a call: steps take turns on the workers, and one that became
        idle helps with the next call.
        """
        furthest = 0
        step: ScoreHeads | None = self

        def told(done: int, total: int) -> None:
            # A call begins at 0, and goes through what earlier ones found.
            nonlocal furthest
            if done > furthest:
                furthest = done
                progress(done, total)

        # On a GPU one batch holds most samples.
        workers = 1 if self.parts == 1 or session.pool.on_gpu else session.pool.size
        while step:
            step = step.run_on_worker(session, told, helpers=min(self.parts, workers) - 1)

    def values_a_call(self) -> int:
        """After how many evaluations another step has its turn."""
        heads, of_method = self.encoder.layers * self.encoder.heads, HEAD_SCORES[self.methods[0]]
        assert of_method.evaluations is not None, "only what values sets is shared"
        evaluations = of_method.evaluations(heads, self.ranking.evaluations)
        return max(_FEWEST, math.ceil(evaluations * CALL_FLOPS / max(self.flops, 1.0)))

    def compute(self, encoder: Encoder, context: Context) -> ScoreHeads | None:
        import numpy as np
        from safetensors.numpy import save_file

        from papa.ranking.scores.streamed import scores_by
        from papa.ranking.value import LossValue, Paused

        with context.scratch() as scratch, ExitStack() as shared:
            asked = self.asked(
                encoder,
                context.found,
                scratch=scratch,
                execution=context.execution,
                progress=context.progress,
            )
            if context.group:
                replicas = shared.enter_context(
                    context.group.replicas(self.losses, {"store": context.store})
                )
                of_batches = partial(replicas.map, "loss")
                value = LossValue(replicas.own, of_batches, self.values, self.values_a_call())
                asked = replace(asked, value=value)
            try:
                found = scores_by(self.methods, asked)
            except Paused as paused:
                return replace(self, values=paused.values, work=(*self.work, context.work()))
        tensors = {name: np.ascontiguousarray(scores.values) for name, scores in found.items()}
        tensors |= {
            ERROR.format(name): np.ascontiguousarray(scores.standard_error)
            for name, scores in found.items()
            if scores.standard_error is not None
        }
        evaluations = {name: scores.evaluations for name, scores in found.items()}
        with context.published(self.work, evaluations=evaluations) as folder:
            save_file(tensors, folder / VALUES)
        return None

    def losses(self, *, encoder: Encoder, store: Store) -> Losses:
        """What values sets of heads on one worker of a group, which opens the inputs itself."""
        from papa.ranking.scores.asked import losses_of

        execution, scratch = ExecutionSpec(), store.scratch
        return losses_of(
            self.asked(encoder, self.found(store), scratch=scratch, execution=execution)
        )

    def asked(
        self, encoder: Encoder, found: Mapping[Step, ArtifactReference], **of_call: Any
    ) -> Asked:
        """What the methods are asked, of verified inputs."""
        from papa.attention.constants import ConstantMatrices
        from papa.ranking.scores.asked import Asked

        corpus, probe = open_corpus(found[self.corpus]), self.probe
        return Asked(
            encoder=encoder,
            constants=ConstantMatrices.load(
                found[self.constants].folder, encoder=self.encoder, slots=self.task.slots
            ),
            corpus=corpus,
            task=self.task,
            ranking=self.ranking,
            seed=self.seed,
            probe=probe.read(found[probe], encoder, corpus) if probe else None,
            **of_call,
        )


Ranking = Rank | ScoreHeads
"""A step that scores heads."""


def read_head_scores(
    method: str,
    rankings: Mapping[int, ArtifactReference],
    encoder: EncoderReference | None = None,
) -> HeadScores | TrainedLambda:
    """The scores of all heads from finished rankings, λ where the method is "lambda"."""
    import numpy as np
    from safetensors.numpy import load_file

    from papa.ranking.seeds import HeadScores

    if method == "lambda":
        return read_lambda(rankings, encoder)
    error, found = ERROR.format(method), []
    for ranking in rankings.values():
        with opened(ranking, VALUES) as folder:
            tensors = load_file(folder / VALUES)
            values = tensors[method]
            heads = values.shape if encoder is None else (encoder.layers, encoder.heads)
            for tensor in (values, tensors.get(error, values)):
                check_form(scores=((tensor.shape, tensor.dtype.kind), (heads, "f")))
            found.append(values)
    return HeadScores(np.stack(found), tensors.get(error) if len(found) == 1 else None)
