"""Studies without a file: ``papa run --encoder NAME --task NAME``, and ``papa run --model NAME
--own TEXTS`` of a model's own head.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from papa.corpora.local_files import format_of, read_file
from papa.encoders.files import CONFIGURATION, read_configuration_file
from papa.encoders.reference import EncoderReference, describe_encoder, load_tokenizer
from papa.errors import DataError, SpecError, joined, shown
from papa.spec import EncoderSpec, StudySpec
from papa.spec.file import override, resolve_study
from papa.spec.task import EMBEDDING_METRICS
from papa.storage.atomic import write_atomically
from papa.study.store import Store

_EXAMPLE = "papa run --encoder google-bert/bert-base-uncased --task cola"
_LEAST, _LEAST_EMBEDDED, _MEASURED = 10, 42, 500
"""Texts in all at least, for embeddings with ten neighbours; texts that are measured at most."""
_SLOTS = (32, 64, 128, 256, 512)
_OWN_EXAMPLE = "papa run --model embedded/all-MiniLM-L6-v2 --own texts.txt"
_DECODERS = ("LMHeadModel", "ForCausalLM")
_HEADS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "Model")


def study_without_file(
    study: Path | None,
    encoders: Sequence[str],
    tasks: Sequence[str],
    limit: int | None,
    overrides: Sequence[str],
) -> StudySpec:
    """The study of some encoders on some tasks, by their names or by folders relative to the
    working directory, with so many rows of each split at most; everything else as a study file has
    it that says nothing of it. A file that was given as well is refused.
    """
    if study is not None:
        raise SpecError(
            f"a study is a file, or --encoder and --task: give {study} alone, with --set for what "
            "should differ"
        )
    for option, names in (("--encoder", encoders), ("--task", tasks)):
        if not names:
            raise SpecError(
                f"{option} is missing: give a study's file, or encoders and tasks, such as "
                f"{_EXAMPLE}"
            )
    # Named by all of it, so that another study has results of its own.
    named = ["+".join(Path(name).name for name in encoders), "+".join(tasks)]
    named += [f"{limit}-rows"] if limit else []
    rows = {} if limit is None else {"train_rows": limit, "validation_rows": limit}
    document = {
        "name": _fit_name("-".join(named)) or "study",
        "encoders": list(encoders),
        "tasks": [{"name": task, **rows} for task in tasks],
    }
    return _resolved(document, overrides)


def _fit_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-._")


def _resolved(document: dict[str, Any], overrides: Sequence[str]) -> StudySpec:
    for setting in overrides:
        override(document, setting)
    return resolve_study(document, folder=Path.cwd(), origin="the command line")


def own_study(
    models: Sequence[str],
    texts: Path,
    others: bool,
    limit: int | None,
    overrides: Sequence[str],
    store: Store,
) -> StudySpec:
    """A study of what a model's own head, or its embeddings, keep on some texts as heads become
    constant: a text a line, or a table with a column ``text``, ``text`` and ``text_pair``, or
    ``words`` and, where there are labels, ``label``. A study's file or tasks that were given as
    well are refused.

    Every other text is measured, 500 at most; the others make the averages. Both halves are kept
    beside the study's results.
    """
    if others or len(models) != 1:
        raise SpecError(
            f"--own takes one model and one file of texts, and nothing else: such as {_OWN_EXAMPLE}"
        )
    rows = _rows(texts)[:limit]
    folder = Path(models[0]).expanduser()
    name = str(folder.resolve()) if folder.is_dir() else models[0]
    reference = describe_encoder(EncoderSpec(name=name))
    tasks = _tasks(reference, rows[0]) if rows else []
    embedded = any(task["metric"] in EMBEDDING_METRICS for task in tasks)
    least = _LEAST_EMBEDDED if embedded else _LEAST
    if len(rows) < least:
        raise DataError(
            f"{texts} holds {len(rows)} texts, expected {least} or more: give more texts"
        )
    short = _fit_name(f"{_fit_name(f'{reference.display}-{texts.stem}')[:90]}-own")
    store.make()
    source = {"kind": "files"}
    for split, part in {"train": rows[1::2], "validation": rows[::2][:_MEASURED]}.items():
        path = store.study(f"{short}.{split}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"{json.dumps(row, ensure_ascii=False)}\n" for row in part)
        write_atomically(path, "".join(lines))
        source[split] = str(path.absolute())
    shared = {"source": source, "slots": _slots(reference, rows), "head": "own"}
    document: dict[str, Any] = {
        "name": short,
        "encoders": [name],
        "tasks": [{**shared, **task} for task in tasks],
        "orders": ["first_to_last", "random"],
        **({"constants": ["average", "relative", "zeros"]} if reference.causal else {}),
    }
    return _resolved(document, overrides)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Texts, or words, with their labels where there are any."""
    table = read_file(path, format_of(path) or "text", header=True).rows
    columns = ("text", "text_pair", "words", "label")
    known = [name for name in columns if name in table.column_names]
    if not {"text", "words"} & set(known):
        raise DataError(
            f"{path} has no column 'text' or 'words' (found: {joined(table.column_names)}): name "
            "one of them so"
        )
    texts = [name for name in ("text", "text_pair") if name in known]
    rows = [
        row
        for row in table.select(known).to_pylist()
        if row.get("words") or (texts and all(str(row[name] or "").strip() for name in texts))
    ]
    for name, value in ((name, row[name]) for row in rows for name in known if name != "label"):
        found = value if name == "words" else [value]
        if value is not None and not (
            isinstance(found, list) and all(isinstance(one, str) for one in found)
        ):
            expected = "a list of words" if name == "words" else "text"
            raise DataError(
                f"{path}: column '{name}' holds {shown(value)}, expected {expected}: correct it"
            )
    return rows


def _tasks(reference: EncoderReference, row: dict[str, Any]) -> list[dict[str, Any]]:
    """What the model's head can be asked of rows like this one."""
    document = read_configuration_file(Path(reference.folder), f"encoder '{reference.name}'")
    architecture = str((document.get("architectures") or ["Model"])[0])
    head = next((head for head in _HEADS if architecture.endswith(head)), None)
    classes = document.get("id2label") or {}
    words, pair, labelled = "words" in row, "text_pair" in row, "label" in row
    if reference.causal:
        if not architecture.endswith(_DECODERS) or labelled or words:
            raise SpecError(
                f"'{reference.name}' is a decoder ({architecture} in {CONFIGURATION}), which is "
                "asked for the next word of plain text: give a language model "
                f"({' or '.join(_DECODERS)}), and texts without labels"
            )
        return _asked("causal", ("negative_log_perplexity", "agreement"), "text")
    kind, columns = ("pair", ("text", "text_pair")) if pair else ("text", ("text",))
    one_number = head == "ForSequenceClassification" and len(classes or "01") == 1
    unused = pair and (head == "ForMaskedLM" or (head == "Model" and not labelled))
    if words and head == "ForTokenClassification" and labelled:
        spans = any(str(name).startswith("B-") for name in classes.values())
        metrics = ("entity_f1" if spans else "token_f1", "agreement")
        return _asked("words", metrics, "words", "label")
    if words or head is None or unused or (one_number and not labelled):
        raise SpecError(
            f"'{reference.name}' is a {architecture} ({CONFIGURATION}), and what can be asked "
            f"of rows with {joined(row)} is not known: give texts to an encoder, a masked "
            "language model or a classifier, words with labels to a token classifier, pairs "
            "with labels to an encoder of sentences, labels to a model of one number, or write "
            "a study with head: own"
        )
    if head == "ForMaskedLM":
        return _asked("mlm", ("negative_log_perplexity", "agreement"), *columns)
    if head == "Model":
        alike = _asked("similarity", ("cosine_spearman",), *columns, "label") if pair else []
        alike = [{**task, "name": "similarity"} for task in alike]
        return [*alike, *_asked("text", EMBEDDING_METRICS, "text")]
    if one_number:
        return _asked(kind, ("spearman",), *columns, "label")
    found = _asked(kind, ("agreement",), *columns)
    if labelled and head == "ForSequenceClassification":
        found = [*_asked(kind, ("accuracy",), *columns, "label"), *found]
    return found


def _asked(kind: str, metrics: Iterable[str], *columns: str) -> list[dict[str, Any]]:
    """Tasks of a kind, each called by its metric."""
    shared = {"kind": kind, "columns": {column: column for column in columns}}
    return [{"name": metric, "metric": metric, **shared} for metric in metrics]


def _slots(reference: EncoderReference, rows: Sequence[dict[str, Any]]) -> int:
    """The least usual layout that holds nearly all of the texts; of a pair each half of it one."""
    texts = [" ".join(row["words"]) if "words" in row else row["text"] for row in rows]
    texts += [row["text_pair"] for row in rows if "text_pair" in row]
    halves = 2 if "text_pair" in rows[0] else 1
    lengths = sorted(halves * len(ids) for ids in load_tokenizer(reference)(texts)["input_ids"])
    needed = lengths[int(0.99 * (len(lengths) - 1))]
    fitting = [slots for slots in _SLOTS if slots <= reference.positions]
    return next((slots for slots in fitting if slots >= needed), fitting[-1])
