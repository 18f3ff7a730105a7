"""The model card of an exported folder: what the export cost and gained in score, speed and size."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from papa.exporting.document import ExportDocument
from papa.reporting.tables import markdown_text
from papa.reporting.wording import METRICS, NOTHING, order_label, percent_label, score_label
from papa.scores.intervals import Interval, interval, relative_drop

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
    """``README.md``: what the folder is, what it cost and gained, how to use it, what it cannot do."""
    encoder, layout, size = document.encoder, document.layout, document.size
    name = markdown_text(encoder["name"])
    source = name + (f" at revision {markdown_text(encoder['revision'])}" if encoder["revision"] else "")
    all_heads = encoder["layers"] * encoder["heads"]
    rows = report_rows(document.score, document.speed, size, len(document.heads), all_heads)
    table = "\n".join(f"| {markdown_text(what)} | {markdown_text(finding)} |" for what, finding in rows)
    cell = (
        f"Cell of study `{document.study['name']}`: {markdown_text(cell_label(document.study))}.\n\n"
        if document.study
        else ""
    )
    call = "texts" if layout["texts"] == 1 else "first_texts, second_texts"
    cut = "padding=True, truncation=True" if layout["texts"] == 1 else "padding=True"
    onnx = _ONNX.format(call=call, cut=cut) if document.speed and "onnx" in document.speed else ""
    if layout["texts"] == 1:
        limits = f"One text per input, up to {layout['longest'][0]} tokens beside [CLS] and [SEP]"
    else:
        first, second = layout["longest"]
        limits = f"Two texts per input, up to {first} tokens of the first and {second} of the second"
    return f"""---
library_name: papa-attention
base_model: {json.dumps(encoder["name"])}
---

# {markdown_text(encoder["name"].rpartition("/")[2])}, {len(document.heads)} of {all_heads} heads constant

{source}, with the attention of {len(document.heads)} of its {all_heads} heads replaced by constant matrices
({document.constants}). Those heads compute no queries, keys or softmax; all other weights are unchanged.

{cell}| Report | Finding |
| --- | --- |
{table}

## Use

```python
import papa

model = papa.load_exported("this-folder")
inputs = model.tokenizer({call}, {cut}, return_tensors="pt")
states = model(**inputs).last_hidden_state  # [batch, tokens, width]
```

{onnx}## Limits

- {limits} (S = {layout["slots"]} slots); longer inputs are refused.
- The weights are frozen. The score above is that of a probe trained on these hidden states, on the task named
  above; `model.unseen_share` is the share of the entries your inputs read that the average had never seen.
- The licence and the limits of {name} hold for this folder too.
"""


def score_kept(
    metric: str, original: Sequence[float], scores: Sequence[float], unseen_share: float | None
) -> dict[str, Any]:
    """The scores of a study of the exported cell.

    Args:
        metric: the task's metric.
        original: scores with every head input-dependent, one per seed; empty where the study lacks them.
        scores: scores of the cell.
        unseen_share: the share of the constants' entries read that the average had never seen.
    """
    after = interval(scores)
    before = interval(original) if original else None
    return {
        "metric": metric,
        **_written(after),
        "original": None if before is None else _written(before),
        "relative_drop": None if before is None else _number(relative_drop(before.mean, after.mean)),
        "unseen_share": unseen_share,
    }


def report_rows(
    score: Mapping[str, Any] | None,
    speed: Mapping[str, Any] | None,
    size: Mapping[str, int],
    heads: int,
    all_heads: int,
) -> list[tuple[str, str]]:
    """The report as (what, finding)."""
    rows = [("Constant heads", f"{heads} of {all_heads}")]
    if score is not None:
        before = score["original"]
        metric = METRICS.get(score["metric"], score["metric"])
        against = "the study has no score of the original (fraction 1)"
        if before is not None:
            drop = _float(score["relative_drop"])
            lost = f"drop {percent_label(drop)}" if drop >= 0 else f"rise {percent_label(-drop)}"
            against = f"original {_label(before)}, {lost}"
        rows.append((f"Score ({metric})", f"{_label(score)} over {_seeds(score)}; {against}"))
    for timing in [] if speed is None else speed["timings"]:
        shape = f"batch {timing['batch']} × {timing['longest']} tokens"
        rows.append(
            (
                f"Speed, {shape}",
                f"{timing['ratio']:.2f}× ({1000 * timing['original_seconds']:.1f} → "
                f"{1000 * timing['exported_seconds']:.1f} ms a batch; {timing['real_tokens']:.0f} real tokens)",
            )
        )
    for timing in [] if speed is None else speed.get("onnx", []):
        rows.append(
            (
                f"Speed in onnxruntime, batch {timing['batch']} × {timing['longest']} tokens",
                f"{timing['ratio']:.2f}× ({1000 * timing['original_seconds']:.1f} → "
                f"{1000 * timing['exported_seconds']:.1f} ms a batch, least of several)",
            )
        )
    if speed is not None:
        rows.append(("Measured", measured(speed)))
    saved = 1 - size["weights"] / size["original_weights"]
    rows.append(
        (
            "Weights",
            f"{_megabytes(size['original_weights'])} → {_megabytes(size['weights'])} ({percent_label(saved)} smaller), "
            f"and {_megabytes(size['constants'])} of constants",
        )
    )
    return rows


def measured(speed: Mapping[str, Any]) -> str:
    """How the speed was measured, in one sentence."""
    threads = f"{speed['threads']} thread{'s' if speed['threads'] > 1 else ''}"
    return (
        f"on {speed['device']} with {threads}, against the original with {speed['attention']} attention, in "
        f"alternation, median of {speed['repeats']} repeats over {speed['rows']} validation rows"
    )


def cell_label(study: Mapping[str, Any]) -> str:
    """The cell of a study in words."""
    return (
        f"{study['encoder']} · {study['task']} · {study['constants']} · {order_label(study['order'])} · "
        f"fraction {study['fraction']:g}"
    )


def _label(score: Mapping[str, Any]) -> str:
    return score_label(*(_float(score[name]) for name in ("mean", "low", "high"))) if score else NOTHING


def _seeds(score: Mapping[str, Any]) -> str:
    return f"{score['seeds']} seed{'s' if score['seeds'] > 1 else ''}"


def _written(scores: Interval) -> dict[str, Any]:
    return {name: _number(getattr(scores, name)) for name in ("mean", "low", "high")} | {"seeds": scores.seeds}


def _number(value: float) -> float | None:
    """JSON has no nan."""
    return None if math.isnan(value) else value


def _float(value: float | None) -> float:
    return math.nan if value is None else value


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
