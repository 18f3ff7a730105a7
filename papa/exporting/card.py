"""The model card of an exported folder."""

from __future__ import annotations

from papa.exporting.document import ExportDocument
from papa.exporting.report import point_label, report_rows


def model_card(document: ExportDocument) -> str:
    """``README.md``: what the folder is, what it cost and gained, how to use it, what it cannot do."""
    encoder, layout, size = document.encoder, document.layout, document.size
    source = encoder["name"] + (f" at revision {encoder['revision']}" if encoder["revision"] else "")
    all_heads = encoder["layers"] * encoder["heads"]
    rows = report_rows(document.score, document.speed, size, len(document.heads), all_heads)
    table = "\n".join(f"| {what} | {finding} |" for what, finding in rows)
    point = f"Point of study `{document.study['name']}`: {point_label(document.study)}.\n\n" if document.study else ""
    call = "texts" if layout["texts"] == 1 else "first_texts, second_texts"
    cut = "padding=True, truncation=True" if layout["texts"] == 1 else "padding=True"
    if layout["texts"] == 1:
        limits = f"One text an input, up to {layout['longest'][0]} tokens beside [CLS] and [SEP]"
    else:
        first, second = layout["longest"]
        limits = f"Two texts an input, up to {first} tokens of the first and {second} of the second"
    return f"""---
library_name: papa-attention
base_model: {encoder["name"]}
---

# {encoder["name"].rpartition("/")[2]}, {len(document.heads)} of {all_heads} heads constant

{source}, with the attention of {len(document.heads)} of its {all_heads} heads replaced by constant matrices
({document.constants}). Those heads compute no queries, keys or softmax; all other weights are unchanged.

{point}| Report | Finding |
| --- | --- |
{table}

## Use

```python
import papa

model = papa.load_exported("this-folder")
inputs = model.tokenizer({call}, {cut}, return_tensors="pt")
states = model(**inputs).last_hidden_state  # [batch, tokens, width]
```

## Limits

- {limits} (S = {layout["slots"]} slots); longer inputs are refused.
- The weights are frozen. The score above is that of a probe trained on these hidden states, on the task named
  above; `model.coverage.unseen_share` tells how much of what your inputs ask of the constants no text ever showed.
- The licence and the limits of {encoder["name"]} hold for this folder too.
"""
