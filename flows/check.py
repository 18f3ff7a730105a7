"""Whether a study can run: everything it names is looked at before anything is computed, and all that is wrong told.

Encoders and datasets are asked for side by side. Nothing here needs Ray, Prefect or MLflow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from flows.build import build_graph
from flows.capacity import check_disk, check_memory
from flows.graph import Graph
from flows.inputs import InputSearch, StudyInputs, check_device, find_inputs, laid_out_like, named_texts, side_by_side
from flows.plan import plan_study
from papa.corpora.preview import Preview, preview
from papa.corpora.tokens import check_mask, special_tokens_of
from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.errors import CheckError, HubUnreachableError, PapaError, Problem, missing_from
from papa.spec import StudySpec, TaskSpec
from papa.storage.artifacts import read_metadata
from tasks.mlflow_client import tracking_address
from tasks.store import Store
from tasks.tokenise import Tokenise


@dataclass(frozen=True)
class Checked:
    """A study that can run.

    Attributes:
        inputs: its encoders and sources.
        graph: its steps.
        previews: what its tasks and corpora hold.
        unseen: what could not be looked at, a sentence each.
        to_run: whether a step has to run.
    """

    inputs: StudyInputs
    graph: Graph
    previews: Mapping[TaskSpec, Preview]
    unseen: tuple[str, ...]
    to_run: bool


def check_study(
    study: StudySpec,
    store: Store,
    *,
    workers: int | None = None,
    ray_address: str | None = None,
    for_plan: bool = False,
    fetch_weights: bool = True,
) -> Checked:
    """Look at every encoder, tokenizer, dataset, split, column and label of a study, at memory and disk.

    Args:
        study: the resolved specification.
        store: what is tokenised there is not read again.
        workers, ray_address: as on the command line.
        for_plan: the study need not run here: published shapes and sizes do where the hub does not answer.
        fetch_weights: download encoders that are not here, as a run needs, and check their weights.

    Raises:
        CheckError: it cannot run; the message tells all that is wrong.
    """
    found = find_inputs(study, shapes_suffice=for_plan, fetch_weights=fetch_weights)
    problems, texts = found.problems, named_texts(study)
    problems += _tokenizers(found)
    there = [text for text in texts if text.source in found.sources and text.source not in found.unreachable_sources]
    seen = side_by_side({text: partial(_look, found, store, text) for text in there})
    previews: dict[TaskSpec, Preview] = {}
    unseen = []
    if found.unreachable:
        unseen = [f"{missing_from(found.unreachable)}; published shapes and sizes are planned with"]
    unseen += [
        f"encoders.{place} ({spec.name}): whether its weights fit (they are not downloaded yet)"
        for place, spec in enumerate(study.encoders)
        if spec in found.encoders and found.encoders[spec].folder and found.encoders[spec].digest.startswith("unknown")
    ]
    for text, result in seen.items():
        if isinstance(result, HubUnreachableError) and for_plan:
            unseen.append(f"{texts[text]}: {result}")
        elif isinstance(result, PapaError):
            problems.append(Problem(texts[text], result))
        else:
            look, wrong = result
            problems += [Problem(texts[text], error) for error in wrong]
            if look is not None:
                previews[text] = look
                unseen += [f"{texts[text]}: {look.unseen}"] if look.unseen else []
    found.rows = {text: look.rows for text, look in previews.items() if look.rows}
    here = not for_plan and cluster_address(study, ray_address) is None
    room = partial(_room, found, store, workers or study.execution.workers or os.cpu_count() or 1)
    if problems:
        raise CheckError([*problems, *(room() if here else [])])
    inputs = found.inputs()
    graph = build_graph(inputs.study, inputs, tracking_address(store))
    to_run = any(step.state == "to run" for step in plan_study(graph, store, {}))
    if here and to_run and (short := room()):
        raise CheckError(short)
    by_commit = {found.at_commit(text): look for text, look in previews.items()}
    return Checked(inputs, graph, by_commit, tuple(unseen), to_run)


def cluster_address(study: StudySpec, ray_address: str | None) -> str | None:
    """The Ray cluster that a study runs on; None for this machine."""
    return ray_address or study.execution.ray_address or os.environ.get("RAY_ADDRESS")


def _look(found: InputSearch, store: Store, text: TaskSpec) -> tuple[Preview | None, list[PapaError]]:
    known = _tokenised(found, store, text)
    if known is not None:
        return known, []
    look, problems = preview(found.at_commit(text))
    return look, list(problems)


def _tokenised(found: InputSearch, store: Store, text: TaskSpec) -> Preview | None:
    """What the store knows of a text that is tokenised for every encoder of the study."""
    study = found.study
    laid_out = [text] if text in study.tasks else [laid_out_like(task, text) for task in study.tasks]
    encoders = [found.encoders[spec] for spec in study.encoders if spec in found.encoders]
    if len(encoders) < len(study.encoders):
        return None
    content = found.sources[text.source][1]
    corpora = [
        Tokenise("", 0.0, encoder, found.at_commit(one), study.layout, content)
        for encoder in encoders
        for one in laid_out
    ]
    if not all(corpus.is_complete(store) for corpus in corpora):
        return None
    metadata = read_metadata(corpora[0].folder(store))
    names = metadata["label_names"]
    return Preview((metadata["rows"]["train"], metadata["rows"]["validation"]), names and tuple(names))


def _tokenizers(found: InputSearch) -> list[Problem]:
    """Tokenizers that cannot be loaded or cannot write the layout."""
    problems = []
    masks = any(text.kind == "mlm" for text in named_texts(found.study))
    for place, spec in enumerate(found.study.encoders):
        encoder = found.encoders.get(spec)
        if encoder is None or not encoder.folder:
            continue
        problems += _caught(f"encoders.{place} ({spec.name})", partial(_tokenizer, encoder, masks=masks))
    return problems


def _tokenizer(encoder: EncoderReference, *, masks: bool) -> None:
    special_tokens = special_tokens_of(load_tokenizer(encoder))
    if masks:
        check_mask(special_tokens)


def _room(found: InputSearch, store: Store, workers: int) -> list[Problem]:
    """Whether device, memory and disk suffice for what was found."""
    study = found.study
    problems = _caught("precision", partial(check_device, study, None))
    encoders = tuple(spec for spec in study.encoders if spec in found.encoders)
    tasks = tuple(task for task in study.tasks if task.source in found.sources)
    sources = found.sources
    constants = tuple(one for one in study.constants if one.corpus is None or one.corpus.source in sources)
    if not (encoders and tasks and constants):
        return problems
    part = InputSearch(
        study.model_copy(update={"encoders": encoders, "tasks": tasks, "constants": constants}),
        found.encoders,
        found.sources,
        found.rows,
    )
    if any(problem.where == "encoders" for problem in found.problems):
        return problems
    inputs = part.inputs()
    problems += _caught("memory", partial(check_memory, inputs.study, inputs, workers))
    problems += _caught("disk", partial(check_disk, inputs.study, inputs, workers, store.root))
    return problems


def _caught(where: str, look: Callable[[], object]) -> list[Problem]:
    try:
        look()
    except PapaError as error:
        return [Problem(where, error)]
    return []
