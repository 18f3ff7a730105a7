"""Studies without a file: ``papa run`` with ``--encoder`` and ``--task``, or with ``--data``."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from papa.errors import DataError, PapaError, SpecError, joined
from papa.models.files import CONFIGURATION, read_configuration_file
from papa.models.reference import EncoderReference, describe_encoder, load_tokenizer
from papa.spec import EncoderSpec, StudySpec
from papa.spec.file import load_study, override, resolve_study
from papa.spec.task import EMBEDDING_METRICS
from papa.storage.store import Store
from papa.text.table import format_of, read_file

_LEAST_TEXTS = 10
"""Texts in all at least."""
_LEAST_EMBEDDED = 42
"""Texts in all at least for embeddings, whose measures read ten neighbours."""
_MEASURED = 500
"""Texts that are measured at most."""
_NAME_CHARACTERS = 100
"""Characters of a study's name at most (``papa.spec.task.Name``)."""
_COLUMNS = ("text", "text_pair", "words", "label")
_SLOTS = (32, 64, 128, 256, 512)


def study_without_file(
    study: Path | None,
    encoders: Sequence[str],
    tasks: Sequence[str],
    limit: int | None,
    overrides: Sequence[str],
) -> StudySpec:
    """Return the study of some encoders on some tasks, with so many rows of each split at most."""
    if study is not None or not encoders or not tasks:
        raise SpecError(
            "give either STUDY.yaml (with --set to override values), or --encoder and "
            "--task, such as papa run --encoder google-bert/bert-base-uncased --task cola"
        )
    # Named by all of it, so that another study has results of its own.
    words = ["+".join(Path(name).name for name in encoders), "+".join(tasks)]
    words += [f"{limit}-rows"] if limit else []
    rows = dict.fromkeys(("train_rows", "validation_rows"), limit) if limit else {}
    document = {"name": _fit_name("-".join(words)), "encoders": list(encoders)}
    return _resolved({**document, "tasks": [{"name": task, **rows} for task in tasks]}, overrides)


def _resolved(document: dict[str, Any], overrides: Sequence[str]) -> StudySpec:
    for setting in overrides:
        override(document, setting)
    return resolve_study(document, folder=Path.cwd(), origin="the command line")


def _fit_name(text: str) -> str:
    """Return the text as a study's name; a long one truncated, with a digest of all of it."""
    name = re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-._") or "study"
    if len(name) <= _NAME_CHARACTERS:
        return name
    digest = sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _NAME_CHARACTERS - len(digest) - 1]}-{digest}"


def study_of_texts(
    models: Sequence[str],
    texts: Path,
    has_study_or_task: bool,
    limit: int | None,
    overrides: Sequence[str],
    store: Store,
    on_refusal: ExitStack,
) -> StudySpec:
    """Write the texts into the store and return a study of a native head, or of embeddings, on
    them: a text a line, or a table with the columns ``text``, ``text`` and ``text_pair``, or
    ``words`` and, where there are labels, ``label``. Every other text is measured, a sample of
    500 at most; the others make the averages. ``limit`` is the largest number of texts in both
    halves together. Results of another model or other texts under the same name are not
    overwritten. ``on_refusal`` removes the files that this call added.
    """
    if has_study_or_task or len(models) != 1:
        raise SpecError(
            "--data needs one --model and no STUDY.yaml or --task: give for example papa run "
            "--model embedded/all-MiniLM-L6-v2 --data texts.txt"
        )
    table = read_file(texts, format_of(texts) or "text")
    columns = [name for name in _COLUMNS if name in table.rows.column_names]
    folder = Path(models[0]).expanduser()
    name = str(folder.resolve()) if folder.is_dir() else models[0]
    reference = describe_encoder(EncoderSpec(name=name))
    tasks = _tasks(reference, columns)
    sides = [table.texts(name).to_pylist() for name in columns if name.startswith("text")]
    sides = sides or [[" ".join(words) for words in table.column("words").to_pylist()]]
    rows = table.rows.select(columns).to_pylist()
    needed = _LEAST_EMBEDDED if tasks[-1]["metric"] in EMBEDDING_METRICS else _LEAST_TEXTS
    rows = _sample(rows, limit)
    if len(rows) < needed:
        advice = f"raise --limit {limit}" if limit == len(rows) else "add texts"
        raise DataError(f"{len(rows)} texts of {texts}, expected at least {needed}: {advice}")
    short = _fit_name(f"{reference.display}-{texts.stem}-native")
    naming = {"name": short}
    for setting in overrides:
        if setting.startswith("name="):
            override(naming, setting)
    halves = {"train": rows[1::2], "validation": _sample(rows[::2], _MEASURED)}
    paths = {half: store.study_path(f"{naming['name']}.{half}.jsonl").absolute() for half in halves}
    source = {"kind": "files", **{split: str(path) for split, path in paths.items()}}
    shared = {"source": source, "slots": _slots(reference, sides), "head": "native"}
    document: dict[str, Any] = {"name": short, "encoders": [name]}
    document["tasks"] = [{**shared, **task} for task in tasks]
    # A first look: the default order of native heads takes a pass over the text for each head.
    document["orders"] = ["first_to_last", "random"]
    if reference.causal:
        document["substitutes"] = ["average", "relative", "zeros"]
    study = _resolved(document, overrides)
    contents = {
        paths[split]: "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in half)
        for split, half in halves.items()
    }
    refuse_same_name(study, store, contents)
    store.make()
    for path, content in contents.items():
        if not path.exists():
            on_refusal.callback(store.studies.remove, path.name)
        store.studies.write(path.name, content.encode(), replace=True)
    return study


def _sample(rows: list[dict[str, Any]], most: int | None) -> list[dict[str, Any]]:
    """Draw so many rows at most from all of them with seed 0, and keep their order."""
    if most is None or len(rows) <= most:
        return rows
    drawn = np.random.default_rng(0).choice(len(rows), most, replace=False)
    return [rows[index] for index in sorted(drawn)]


def refuse_same_name(study: StudySpec, store: Store, contents: Mapping[Path, str]) -> None:
    """Refuse a study whose name, which the command chose, the store has for other encoders or
    texts: it would overwrite their results. ``contents`` are the files of texts that it would
    write.
    """
    saved = store.study_path(f"{study.name}.yaml")
    if not saved.exists():
        return
    try:
        before = [encoder.name for encoder in load_study(saved).encoders]
    except PapaError:
        # Written by another version, or damaged: nothing can be said of it.
        return
    now = [encoder.name for encoder in study.encoders]
    difference = f"of {joined(before)}, not {joined(now)}" if before != now else ""
    for path, content in contents.items():
        if path.exists() and path.read_text(encoding="utf-8") != content:
            difference = difference or f"on other texts ({path})"
    if difference:
        raise SpecError(
            f"the store {store.address} has a study '{study.name}' {difference}: give this study "
            "another name with --set name=NAME, or delete the other with 'papa remove "
            f"{study.name}'"
        )


def _tasks(reference: EncoderReference, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the tasks that the model's head can serve on rows with these columns, one for each
    metric.
    """
    document, _ = read_configuration_file(Path(reference.folder), reference.name)
    architecture = str((document.get("architectures") or ["Model"])[0])
    classes = document.get("id2label") or {}
    labelled = "label" in columns
    text = [name for name in columns if name != "label"]
    kind = {"text": "text", "text text_pair": "pair", "words": "words"}.get(" ".join(text), "")
    tasks: list[tuple[str, str, Sequence[str]]] = []
    if architecture.endswith(("LMHeadModel", "ForCausalLM", "ForMaskedLM")):
        causal = not architecture.endswith("ForMaskedLM")
        if kind == "text" and not (causal and labelled):
            metrics = ("negative_log_perplexity", "agreement")
            tasks = [("causal" if causal else "mlm", metric, text) for metric in metrics]
    elif kind == "words":
        if architecture.endswith("ForTokenClassification") and labelled:
            spans = any(str(name).startswith("B-") for name in classes.values())
            metrics = ("entity_f1" if spans else "token_f1", "agreement")
            tasks = [("words", metric, columns) for metric in metrics]
    elif kind and architecture.endswith("ForSequenceClassification"):
        one_number = len(classes or "01") == 1
        tasks = [(kind, "spearman" if one_number else "accuracy", columns)] if labelled else []
        tasks += [] if one_number else [(kind, "agreement", text)]
    elif kind and architecture.endswith("Model") and (kind == "text" or labelled):
        tasks = [("similarity", "cosine_spearman", columns)] if kind == "pair" else []
        tasks += [("text", metric, ["text"]) for metric in EMBEDDING_METRICS]
    if not tasks or reference.causal != (tasks[0][0] == "causal"):
        raise SpecError(
            f"'{reference.name}' is a {architecture} ({CONFIGURATION}), which cannot be "
            f"measured on rows with {joined(columns) or 'none'} of the columns "
            f"{joined(_COLUMNS)}: name the file's columns so, or write a study with head: native"
        )
    return [
        {
            "name": "similarity" if kind == "similarity" else metric,
            "metric": metric,
            "kind": kind,
            "columns": dict(zip(read, read, strict=True)),
        }
        for kind, metric, read in tasks
    ]


def _slots(reference: EncoderReference, sides: list[list[str]]) -> int:
    """Return the smallest usual layout that holds nearly all of the texts; of pairs, each half of
    it one text.
    """
    ids = load_tokenizer(reference)([text for side in sides for text in side])["input_ids"]
    lengths = sorted(len(sides) * len(text_ids) for text_ids in ids)
    needed = lengths[int(0.99 * (len(lengths) - 1))]
    fitting = [slots for slots in _SLOTS if slots <= reference.positions]
    return next((slots for slots in fitting if slots >= needed), fitting[-1])
