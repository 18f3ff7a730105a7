"""Published shapes of the paper's encoders, for plans where their files cannot be had."""

from __future__ import annotations

from importlib.resources import files

import yaml

from papa.encoders.reference import EncoderReference
from papa.spec import EncoderSpec, Precision


def known_shape(spec: EncoderSpec, precision: Precision) -> EncoderReference | None:
    """A reference that has the encoder's shape and stands for no files; None where the shape is not known."""
    shapes = yaml.safe_load((files("papa.encoders") / "shapes.yaml").read_text())
    if spec.name not in shapes:
        return None
    unknown = f"unknown, of {spec.name}@{spec.revision}"
    return EncoderReference(
        name=spec.name,
        revision=spec.revision,
        folder="",
        digest=unknown,
        tokenizer_digest=unknown,
        precision=precision,
        **shapes[spec.name],
    )
