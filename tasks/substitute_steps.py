"""Which step computes what takes attention's place."""

from papa.spec import SubstituteSpec, TaskSpec
from papa.spec.substitutes import entry_of
from papa.tasks.pair import Pair, average_step, native_task
from papa.tasks.step import Step
from papa.tasks.substitutes import (
    SubstituteSource,
    average_by_distance,
    constant_outputs,
    supplied_matrices,
)


def substitute_source(pair: Pair, spec: SubstituteSpec, seed: int) -> SubstituteSource:
    """Return what takes attention's place, before any training of its own; the probe ``seed`` is of
    substitutes that are drawn.
    """
    kind = spec.initial_kind
    entry = entry_of(kind)
    if entry.origin in ("slots", "attention"):
        return SubstituteSource(kind, spec.parameters)
    native = native_task(pair.task)
    source: Step
    if entry.origin == "outputs":
        name = f"constant_outputs · {pair.title} · {kind}"
        source = constant_outputs.step(
            f"{name} · seed {seed}" if entry.drawn else name,
            encoder=pair.encoder,
            text=pair.text,
            kind=kind,
            seed=seed if entry.drawn else None,
            task=native,
        )
    elif entry.is_by_distance and native is not None:
        name = f"average_by_distance · {pair.title}"
        source = average_by_distance.step(name, encoder=pair.encoder, text=pair.text, task=native)
    elif kind in pair.inputs.matrices:
        name = f"supplied_matrices · {pair.label} · {kind}"
        source = supplied_matrices.step(
            name, encoder=pair.encoder, matrices=pair.inputs.matrices[kind]
        )
    else:
        text = _averaged_text(pair, spec)
        source = pair.average if text == pair.task else average_step(pair, text)
    return SubstituteSource(kind, spec.parameters, source)


def _averaged_text(pair: Pair, spec: SubstituteSpec) -> TaskSpec:
    """Return the text that an average is over: the task's own, another one, or a sample of
    either.
    """
    text = (spec.corpus or pair.task).model_copy(update={"slots": pair.task.slots})
    if spec.rows is None:
        return text
    sample = {"name": f"{text.name}-{spec.rows}-rows", "train_rows": spec.rows}
    return text.model_copy(update=sample)
