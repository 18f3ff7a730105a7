"""Stage ``scores``: scores of all heads by a method of ``HEAD_SCORES``; and ``frozen_probe``: the
task's probe on the encoder as it is, which some of them read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.spec import RankingSpec, TaskSpec
from papa.spec.methods import HEAD_SCORES
from papa.storage.artifacts import ArtifactReference, check_form, opened, read_metadata
from papa.study.average import Average
from papa.study.constants import Given
from papa.study.rank import Rank, read_lambda
from papa.study.step import Context, Step, WorkerStep, identity
from papa.study.tokenise import OnText, Tokenise, open_corpus

if TYPE_CHECKING:
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.probes.probes import Probe
    from papa.ranking.scores.asked import Asked
    from papa.ranking.seeds import HeadScores, TrainedLambda

WEIGHTS = "probe.safetensors"
VALUES, ERROR = "scores.safetensors", "{} ± 1"
"""Of a method: its values by its name, their standard error by this."""


@dataclass(frozen=True, eq=False)
class FrozenProbe(OnText, WorkerStep):
    """Train the probe of one seed; the methods that read it share it."""

    stage: ClassVar[str] = "frozen_probe"
    version: ClassVar[int] = 1
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
    """

    stage: ClassVar[str] = "scores"
    version: ClassVar[int] = 4
    loads_encoder: ClassVar[bool] = True

    encoder: EncoderReference
    corpus: Tokenise
    constants: Average | Given
    task: TaskSpec
    ranking: RankingSpec
    methods: tuple[str, ...]
    seed: int
    probe: FrozenProbe | None = None

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

    def compute(self, encoder: Encoder, context: Context) -> None:
        import numpy as np
        from safetensors.numpy import save_file

        from papa.ranking.scores.streamed import scores_by

        with context.scratch() as scratch:
            asked = self.asked(
                encoder,
                context.found,
                scratch=scratch,
                execution=context.execution,
                progress=context.progress,
            )
            found = scores_by(self.methods, asked)
        tensors = {name: np.ascontiguousarray(scores.values) for name, scores in found.items()}
        tensors |= {
            ERROR.format(name): np.ascontiguousarray(scores.standard_error)
            for name, scores in found.items()
            if scores.standard_error is not None
        }
        evaluations = {name: scores.evaluations for name, scores in found.items()}
        draws = {name: scores.draws for name, scores in found.items()}
        with context.published(evaluations=evaluations, draws=draws) as folder:
            save_file(tensors, folder / VALUES)

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
    controls: Mapping[int, ArtifactReference] = MappingProxyType({}),
) -> HeadScores | TrainedLambda:
    """The scores of all heads from finished rankings, λ where the method is "lambda", which may
    have ``controls``.
    """
    import numpy as np
    from safetensors.numpy import load_file

    from papa.ranking.seeds import HeadScores

    if method == "lambda":
        return read_lambda(rankings, encoder, controls)
    error, found = ERROR.format(method), []
    for ranking in rankings.values():
        with opened(ranking, VALUES) as folder:
            tensors = load_file(folder / VALUES)
            values = tensors[method]
            heads = values.shape if encoder is None else (encoder.layers, encoder.heads)
            for tensor in (values, tensors.get(error, values)):
                check_form(scores=((tensor.shape, tensor.dtype.kind), (heads, "f")))
            found.append(values)
    if len(found) > 1 or error not in tensors:
        return HeadScores(np.stack(found))
    draws = int(read_metadata(ranking.path)["draws"][method])
    return HeadScores(np.stack(found), tensors[error], draws)
