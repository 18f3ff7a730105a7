"""What constant heads put out: made by stages where it takes an encoder, else where used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from papa.models.reference import EncoderReference, load_tokenizer
from papa.spec import ConstantsKind, TaskSpec
from papa.spec.study import CONTROLS, DERIVED, OF_DECODERS, OUTPUTS
from papa.storage.artifacts import ArtifactReference, verified
from papa.tasks.step import Context, Step, stage

DISTANCES = "distances.safetensors"


@dataclass(frozen=True)
class Constants:
    """One kind of constants, before any training; ``source`` makes what it is made of, if any."""

    kind: ConstantsKind
    parameters: Mapping[str, int] = field(default_factory=dict)
    source: Step | None = None

    @property
    def artifact(self) -> Step | None:
        """The step whose artifact they are, as they are."""
        derived = self.source and self.source.stage == "average" and self.kind != "average"
        return None if derived else self.source

    def read(
        self, made: ArtifactReference | None, encoder: EncoderReference, task: TaskSpec
    ) -> Any:
        """What they put out for a task; ``made`` is their source's artifact, verified here."""
        from safetensors.torch import load_file

        from papa.heads.average import ByDistance
        from papa.heads.constants import ConstantMatrices, control, derived
        from papa.heads.outputs import read_outputs
        from papa.heads.substitutes import Streaming

        kind, size = self.kind, (encoder.layers, encoder.heads)
        if kind in OF_DECODERS:
            return Streaming(**self.parameters)
        if kind in CONTROLS:
            return control(kind, *size, task.slots, **self.parameters)
        assert made is not None
        if kind in OUTPUTS:
            return read_outputs(made, kind)
        if kind == "relative" and encoder.causal:
            return ByDistance(**load_file(verified(made, DISTANCES) / DISTANCES))
        matrices = ConstantMatrices.load(made, encoder=encoder, slots=task.slots)
        if kind in DERIVED:
            return derived(kind, matrices, special_of(encoder, task), **self.parameters)
        return matrices


def special_of(encoder: EncoderReference, task: TaskSpec) -> tuple[int, ...]:
    """The slots of [CLS] and [SEP] in a task's text."""
    from papa.text.layout import special_slots
    from papa.text.tokens import special_tokens_of

    tokens = special_tokens_of(load_tokenizer(encoder), task.kind)
    return special_slots(task.kind, task.slots, double_separator=tokens.between == 2)


@stage("outputs", version=2)
def outputs(
    run: Context,
    encoder: EncoderReference,
    corpus: Step,
    slots: int,
    kind: ConstantsKind,
    seed: int | None = None,
) -> None:
    """Constant outputs of an encoder's heads, on average or drawn from the training text."""
    from papa.heads.outputs import FILE, outputs_over

    split = run.corpus(corpus).split("train")
    tokens = run.encoder.tokens_per_batch(run.execution.batch_tokens)
    asked: Any = {"batch_tokens": tokens, "seed": seed, "progress": run.progress}
    found = outputs_over(run.encoder, split, kind, **asked)
    with run.published() as folder:
        found.save(folder / FILE)


@stage("relative", version=2)
def relative(run: Context, encoder: EncoderReference, corpus: Step) -> None:
    """Average a decoder's attention by distance over the training text of a corpus."""
    from safetensors.torch import save_file

    from papa.heads.average import AverageByDistance

    average = AverageByDistance()
    own = run.own_model(corpus["task"], encoder)
    own.observe(run.corpus(corpus).split("train"), average.see, run.progress)
    found = vars(average.substitute())
    tensors = {name: found[name].contiguous() for name in ("weights", "ends")}
    with run.published() as folder:
        save_file(tensors, folder / DISTANCES)


@stage("given", version=1, where="pool")
def given(run: Context, encoder: EncoderReference, matrices: Any) -> None:
    """Keep ``ConstantMatrices`` that the library was given; they go to no worker."""
    kept = replace(matrices, kind="own", counts=None, encoder_digest=None, special=None)
    kept.save(run.step.folder(run.store), encoder, run.metadata())
