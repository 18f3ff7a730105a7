"""Whether an exported folder computes what the study did."""

from __future__ import annotations

from dataclasses import replace

import torch

from papa.attention.replacement import Constants, replaced
from papa.corpora.split import TokenisedSplit
from papa.encoders.encoder import load_encoder
from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError
from papa.exporting.model import ExportedEncoder
from papa.exporting.speed import ordinary_inputs, reproducible_rows, spread_rows

TOLERANCE = 1e-4
"""By how much hidden states may differ from the study's, relative to the largest of them."""
_CHECKED_ROWS = 16


@torch.inference_mode()
def check_same(
    exported: ExportedEncoder,
    reference: EncoderReference,
    constants: Constants,
    split: TokenisedSplit,
) -> None:
    """Compare with the encoder as the study ran it, or by distance with tokens in their places, in
    full precision, on some rows.
    """
    encoder = load_encoder(replace(reference, precision="float32"), str(exported.device))
    rows = spread_rows(reproducible_rows(split, exported.layout), _CHECKED_ROWS)
    if not len(rows):
        return
    inputs = ordinary_inputs(split, rows, exported.layout)
    in_place = exported.layout.slots is None
    tokens = exported.layout.place(**inputs) if in_place else split.tokens(rows)
    batch = exported.layout.batch(rows, tokens)
    with replaced(encoder, constants, exported.heads):
        expected = encoder.hidden_states(batch)[-1][batch.attention_mask.to(encoder.device)]
    states = exported(**inputs).last_hidden_state[
        inputs["attention_mask"].bool().to(exported.device)
    ]
    difference = float((states - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        raise ArtifactError(
            f"the exported encoder differs from the study's by {difference:.1e} of its largest "
            f"hidden state, at most {TOLERANCE:.0e} is allowed: report this as a fault, nothing "
            "was written"
        )
