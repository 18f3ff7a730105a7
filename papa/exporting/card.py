"""The model card of an exported folder: what the export cost and gained in score, speed
and size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from papa.exporting.document import ExportDocument
from papa.exporting.gains import (
    advice,
    choices,
    gained,
    measured,
    shape_label,
    timing_label,
)
from papa.reporting.wording import (
    markdown_table,
    markdown_text,
    order_label,
    percent_label,
    score_label,
)
from papa.spec.values import OUTPUTS

_KEPT = 0.8
"""Where surely fewer of the ten nearest neighbours are kept, by the interval's upper end, a warning
comes first."""
_LABELS = 8
"""Labels that are named."""
_CLASSIFY = """As a classifier, `model` also gives `logits`:

```python
from transformers import pipeline

classify = pipeline("{task}", model=model, tokenizer=model.tokenizer{more})
```

"""
_ONNX = """In onnxruntime, with the same hidden states:

```python
import onnxruntime
from transformers import AutoTokenizer

session = onnxruntime.InferenceSession("this-folder/model.onnx")
tokenizer = AutoTokenizer.from_pretrained("this-folder")
inputs = tokenizer({call}, {cut}, return_tensors="np")
names = [one.name for one in session.get_inputs()]
(states,) = session.run(None, {{name: inputs[name] for name in names}})
```

"""


def model_card(document: ExportDocument) -> str:
    """``README.md``: what the folder is, what it cost and gained, how to use it, what it
    cannot do.
    """
    encoder, layout = document.encoder, document.layout
    name = markdown_text(encoder["name"])
    source = name + (
        f" at revision {markdown_text(encoder['revision'])}" if encoder["revision"] else ""
    )
    all_heads = encoder["layers"] * encoder["heads"]
    rows = report_rows(document)
    table = "\n".join(
        f"| {markdown_text(what)} | {markdown_text(finding)} |" for what, finding in rows
    )
    by_slot = layout["slots"] is not None
    cell = _cell(document.study, by_slot) if document.study else ""
    call = "texts" if layout["texts"] == 1 else "first_texts, second_texts"
    cut = "padding=True, truncation=True" if layout["texts"] == 1 else "padding=True"
    beside = "".join(
        f"## Int8 beside constant heads, in {choice.runtime}\n\n"
        f"{markdown_table([*map(markdown_text, choice.headings)], choice.rows)}\n\n"
        for choice in choices(document)
    )
    onnx = _ONNX.format(call=call, cut=cut) if document.speed and "onnx" in document.speed else ""
    classify = "" if document.classifier is None else _classify(document.classifier)
    others = (
        "all other weights were trained after the export, and nothing but speed was measured since"
        if document.tuned
        else "all other weights are unchanged"
    )
    scored = (
        "- The score above is that of probes trained on these hidden states, on the task named "
        "above.\n"
        if document.score
        else ""
    )
    spared, unseen = "need no queries, keys or values", ""
    if document.constants not in OUTPUTS:
        spared = "compute no queries, keys or softmax"
        unseen = (
            "- `model.unseen_share` is the share of the entries read that the average never saw.\n"
        )
    title = markdown_text(encoder["name"].rpartition("/")[2])
    return f"""---
library_name: papa-attention
base_model: {json.dumps(encoder["name"])}
---

# {title}, {len(document.heads)} of {all_heads} heads constant

{source}, with the attention of {len(document.heads)} of its {all_heads} heads replaced by constants
({document.constants}).
Those heads {spared}; {others}.

{cell}| Report | Finding |
| --- | --- |
{table}

{beside}## Use

```python
import papa

model = papa.load_exported("this-folder")
inputs = model.tokenizer({call}, {cut}, return_tensors="pt")
states = model(**inputs).last_hidden_state  # [batch, tokens, width]
```

{classify}{onnx}## Limits

{_limits(layout)}
{scored}- `docs/how-to/export.md` shows how to train the weights further.
{unseen}- The licence and the limits of {name} hold for this folder too.
"""


def _classify(classifier: Mapping[str, Any]) -> str:
    if classifier["tokens"]:
        return _CLASSIFY.format(task="token-classification", more=', aggregation_strategy="first"')
    return _CLASSIFY.format(task="text-classification", more=", truncation=True")


def _cell(study: Mapping[str, Any], by_slot: bool) -> str:
    what = f"of study `{study['name']}`: {markdown_text(cell_label(study))}.\n"
    if by_slot:
        return f"Cell {what}\n"
    return (
        f"The heads are those of a cell {what}Its score is of constants by slot, and says nothing "
        "of this folder.\n\n"
    )


def _limits(layout: Mapping[str, Any]) -> str:
    """Which inputs the folder takes, and how it treats them."""
    texts = "One text per input" if layout["texts"] == 1 else "Two texts per input"
    if layout["slots"] is None:
        return (
            f"- {texts}, up to {layout['longest'][0]} tokens beside [CLS] and [SEP]: as many as "
            "the encoder has positions for;\n  `truncation=True` cuts longer ones.\n"
            "- Constants go by the distance between two tokens, with [CLS] and the last [SEP] "
            "apart, so there is no limit of S slots;\n"
            "  a distance that no text of the average had has the weight of the farthest that one "
            "had."
        )
    longest = layout["longest"]
    most, longer = (
        (f"{longest[0]} tokens beside [CLS] and [SEP]", "`truncation=True` cuts longer ones")
        if layout["texts"] == 1
        else (
            f"{longest[0]} tokens of the first and {longest[1]} of the second",
            "longer ones are refused",
        )
    )
    where = (
        "Tokens have their ordinary positions, as in the study; constants are read at their slots."
        if layout.get("positions") == "tokens"
        else "[SEP] stands in the last slot, not after the text, so hidden states differ from the "
        "original's\n  whatever heads are constant."
    )
    return f"- {texts}, up to {most}\n  (S = {layout['slots']} slots); {longer}.\n- {where}"


def report_rows(document: ExportDocument) -> list[tuple[str, str]]:
    """The report as (what, finding); where nothing is gained comes first."""
    size, speed, score = document.size, document.speed, document.score
    graph = None if speed is None else speed.get("onnx")
    kinds = [
        (timed, where)
        for timed, where in ((speed, ""), (graph, " in onnxruntime"))
        if timed is not None
    ]
    rows = [] if document.fidelity is None else _fidelity_rows(document.fidelity)
    rows += [(f"Speed{where}", gained(timed)) for timed, where in kinds]
    rows += [sentence for choice in choices(document) for sentence in choice.sentences]
    rows += advice(document)
    rows.append(
        (
            "Constant heads",
            f"{len(document.heads)} of {document.encoder['layers'] * document.encoder['heads']}",
        )
    )
    rows += [] if score is None else _score_rows(score, document.layout)
    rows += [] if document.classifier is None else [_classifier_row(document.classifier)]
    for timed, where in kinds:
        rows += [
            (f"Speed{where}, {shape_label(timing)}", timing_label(timing))
            for timing in timed["timings"]
        ]
    if speed is not None:
        rows.append(("Measured", measured(speed)))
    saved = 1 - size["weights"] / size["original_weights"]
    rows.append(
        (
            "Weights",
            f"{_megabytes(size['original_weights'])} → {_megabytes(size['weights'])} "
            f"({percent_label(saved)} smaller), and {_megabytes(size['constants'])} of constants",
        )
    )
    return rows


def _fidelity_rows(fidelity: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the embeddings keep, and before it a warning where that is too little."""
    measures = {
        "cosine": "cosine to the original's",
        "similarities": "Spearman of similarities",
        "nearest_1": "nearest neighbour kept",
        "nearest_10": "ten nearest kept",
    }
    found = [
        f"{words} {score_label(**{end: fidelity[name][end] for end in ('mean', 'low', 'high')})}"
        for name, words in measures.items()
        if name in fidelity
    ]
    rows = [
        ("Embeddings", f"mean-pooled, on {fidelity['texts']} validation texts: {', '.join(found)}")
    ]
    if "nearest_10" in fidelity and fidelity["nearest_10"]["high"] < _KEPT:
        kept = percent_label(fidelity["nearest_10"]["mean"])
        warning = (
            f"its embeddings keep {kept} of the original's ten nearest neighbours, surely less "
            f"than {100 * _KEPT:.0f} %, whatever the score of the probe says: do not search or "
            "compare texts with it as with the original"
        )
        rows.insert(0, ("Warning", warning))
    return rows


def _score_rows(score: Mapping[str, Any], layout: Mapping[str, Any]) -> list[tuple[str, str]]:
    written = score["written"]
    original = (
        f"original {written['original']}"
        if written["original"]
        else "the study has no score of the original"
    )
    seeds = f"{score['seeds']} seed{'s' if score['seeds'] > 1 else ''}"
    verdict, *doubts = written["notes"]
    cut = f"{score['cut']} texts in its {score['rows']} validation rows were cut to fit; " + (
        "truncation=True cuts them alike" if layout["texts"] == 1 else "the folder refuses such"
    )
    baselines = ", ".join(f"{name} {found}" for name, found in written["baselines"].items())
    return [
        (
            f"Score ({score['metric']})",
            f"{written['score']} over {seeds}; {original}, drop {written['drop']}",
        ),
        *([("Baselines", baselines)] if baselines else []),
        ("How to read it", " ".join([verdict, *doubts])),
        (
            "Measured by the study",
            f"in {score['precision']}; the folder computes in float32. {cut}",
        ),
    ]


def _classifier_row(classifier: Mapping[str, Any]) -> tuple[str, str]:
    of, same = "words" if classifier["tokens"] else "texts", ""
    if "rows" in classifier:
        same = (
            f"; it answers {classifier['same']} of {classifier['rows']} validation rows as in the "
            "study"
        )
    labels = ", ".join(classifier["labels"][:_LABELS])
    whose = (
        "the model's own head"
        if "own" in classifier
        else f"the study's probe of seed {classifier['seed']}"
    )
    more = ", …" if len(classifier["labels"]) > _LABELS else ""
    return (
        "Classifier",
        f"of {of} ({labels}{more}): {whose}{same}",
    )


def cell_label(study: Mapping[str, Any]) -> str:
    """The cell of a study in words."""
    return (
        f"{study['encoder']} · {study['task']} · {study['constants']} · "
        f"{order_label(study['order'])} · fraction {study['fraction']:g}"
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
