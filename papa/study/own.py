"""Stages ``answers`` and ``own``: what a model's own head answers, and what that scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import TypeAdapter

from papa.encoders.reference import EncoderReference
from papa.scores.own import OwnCode, code_part
from papa.spec import TaskSpec
from papa.spec.orders import Head
from papa.storage.artifacts import ArtifactReference, opened
from papa.study.constants import Distances, OnTheFly, Outputs, read_distances
from papa.study.probe import EXAMPLES, ProbeScores, ScoredSeed, WithConstantHeads
from papa.study.score_heads import Ranking
from papa.study.step import Context, Step, WorkerStep
from papa.study.tokenise import Tokenise, open_corpus

if TYPE_CHECKING:
    from papa.ablation.substitutes import Substitute
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.probes.own import Answers as Found
    from papa.probes.own import BatchScore

ANSWERS, ABOUT = "answers.safetensors", "answers.json"


@dataclass(frozen=True, eq=False)
class Answers(WithConstantHeads):
    """Have a model's own head answer the validation rows while some heads are constant."""

    stage: ClassVar[str] = "answers"
    version: ClassVar[int] = 1
    loads_encoder: ClassVar[bool] = True

    def spec(self) -> dict[str, Any]:
        return {
            **super().spec(),
            "task": self.task.model_dump(mode="json", include={"kind", "slots"}),
            "embeddings": self.task.of_embeddings,
        }

    def compute(self, encoder: Encoder | None, context: Context) -> None:
        from safetensors.numpy import save_file

        from papa.ablation.substitutes import ByPosition, OutputsBySlot
        from papa.probes.cell import unseen_by
        from papa.probes.own import own_answers
        from papa.probes.own_model import class_names, classes_told, opened_own

        reference = (encoder and encoder.reference) or self.encoder
        device, heads = str(encoder.device) if encoder else "cpu", self.heads(context.found)
        model, special_tokens = opened_own(self.task, reference, device)
        matrices = None
        substitute: Substitute | None = None
        if isinstance(self.constants, OnTheFly):
            substitute = self.constants.substitute()
        elif isinstance(self.constants, Distances):
            substitute = read_distances(context.found[self.constants], self.encoder)
        elif isinstance(self.constants, Outputs):
            outputs = self.constants.read(context.found[self.constants])
            substitute = OutputsBySlot(outputs.to(device))
        elif self.constants:
            matrices = self.matrices(context.found[self.constants])
            substitute = ByPosition(matrices.matrices)
        corpus = open_corpus(context.found[self.corpus])
        classes_told(corpus.label_names, class_names(model), self.task)  # Refused before it runs.
        split = corpus.split("validation")
        found = own_answers(
            model,
            split,
            special_tokens,
            substitute,
            heads,
            embeddings=self.task.of_embeddings,
            score=self._score(corpus, class_names(model)),
            progress=context.progress,
        )
        about = About(
            classes=class_names(model),
            constant_heads=tuple(sorted(heads)),
            unseen_share=None if matrices is None else unseen_by(matrices, split),
        )
        with context.published() as folder:
            (folder / ABOUT).write_text(json.dumps(asdict(about)) + "\n")
            save_file(found, folder / ANSWERS)

    def _score(self, corpus: TokenisedCorpus, own: Sequence[str]) -> BatchScore | None:
        """A score of the user's own of a batch, with labels as the model's head counts them."""
        from papa.probes.own import score_of_batch
        from papa.probes.own_model import class_ids

        if not (self.code and self.code.score):
            return None
        names = corpus.label_names
        return partial(
            score_of_batch, self.code.score, class_ids(names, own, self.task) if names else None
        )


@dataclass(frozen=True)
class About:
    """What else the stage ``answers`` found: the classes of the model's head, the constant heads as
    (layer, head), sorted, and the unseen share, as of a probe.
    """

    classes: tuple[str, ...]
    constant_heads: tuple[tuple[int, int], ...]
    unseen_share: float | None


def read_answers(found: ArtifactReference) -> tuple[Found, About]:
    """What a finished step of stage ``answers`` holds."""
    from safetensors.numpy import load_file

    with opened(found, ANSWERS, ABOUT) as folder:
        about = TypeAdapter(About).validate_python(json.loads((folder / ABOUT).read_text()))
        return load_file(folder / ANSWERS), about


@dataclass(frozen=True, eq=False)
class Own(WorkerStep):
    """Score the answers of a model's own head; its artifact is as that of a probe, which has the
    same for all seeds, as nothing is trained.
    """

    stage: ClassVar[str] = "own"
    version: ClassVar[int] = 1

    answers: Answers
    original: Answers
    task: TaskSpec
    seeds: tuple[int, ...]
    code: OwnCode | None = field(default=None, kw_only=True)

    trained: ClassVar[bool] = False

    @property
    def encoder(self) -> EncoderReference:
        return self.answers.encoder

    @property
    def corpus(self) -> Tokenise:
        return self.answers.corpus

    @property
    def constants(self) -> Step | None:
        return self.answers.constants

    @property
    def rankings(self) -> Mapping[int, Ranking]:
        return self.answers.rankings

    @property
    def count(self) -> int:
        return self.answers.count

    def heads(self, found: Mapping[Step, ArtifactReference]) -> tuple[Head, ...]:
        """As of its answers."""
        return self.answers.heads(found)

    def ranked(self, found: Mapping[Step, ArtifactReference]) -> list[Head]:
        """As of its answers."""
        return self.answers.ranked(found)

    def outside(self) -> dict[str, str]:
        return code_part(self.code)

    def spec(self) -> dict[str, Any]:
        return {
            "task": self.task.model_dump(
                mode="json", include={"kind", "labels", "metric", "positive"}
            ),
            "seeds": list(self.seeds),
        }

    def inputs(self) -> dict[str, Step]:
        return {"corpus": self.corpus, "answers": self.answers, "original": self.original}

    def compute(self, encoder: None, context: Context) -> None:
        import numpy as np
        from safetensors.numpy import save_file

        from papa.probes.own import own_score
        from papa.probes.own_model import classes_told
        from papa.scores.metrics import positive_name

        corpus = open_corpus(context.found[self.corpus])
        (before, _), (after, about) = (
            read_answers(context.found[step]) for step in (self.original, self.answers)
        )
        split, names = corpus.split("validation"), corpus.label_names
        scored = own_score(self.task, before, after, split, names, about.classes, self.code)
        document = ProbeScores(
            scores=tuple(ScoredSeed(seed, scored.score, 0.0) for seed in self.seeds),
            positive=positive_name(self.task, names),
            unseen_share=about.unseen_share,
            constant_heads=about.constant_heads,
            heads=self.encoder.layers * self.encoder.heads,
            seconds=context.seconds,
            device=context.device,
            classes=classes_told(names, about.classes, self.task),
        )
        with context.published() as folder:
            document.save(folder)
            save_file(
                {"examples": np.stack([scored.examples] * len(self.seeds))}, folder / EXAMPLES
            )
