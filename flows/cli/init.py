"""``papa init``: a short study with comments, to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli import options
from papa.errors import SpecError

EXAMPLE = """\
# A study of PAPA, to be edited; the reference of study files has every key. It runs as it is.
name: my-study
# Hub names, or folders.
encoders: [embedded/all-MiniLM-L6-v2]
# By name ('papa tasks' lists them), changed key by key, or your own.
tasks:
  - reviews
  # - name: tickets
  #   kind: text
  #   source: {kind: files, train: train.jsonl, validation: validation.jsonl}
  #   columns: {text: body, label: queue}
  #   metric: accuracy
  #   slots: 128
  #   probe: {learning_rate: 1.0e-4, batch_size: 16, epochs: 4}

# What follows holds without it, too.
# What replaces attention:
constants: [average]
# Which heads become constant first:
orders: [lambda]
# The share of heads that keep their attention; drops are measured against 1.
fractions: [1, 0.5, 0.125, 0.0625, 0]
# One probe each; intervals need two or more.
seeds: [0, 1, 2]
# λ is trained with each; rows: 160 takes a sample for each.
ranking: {seeds: [0, 1, 2], rows: null}
"""


def init(
    to: Annotated[Path, typer.Argument(metavar="[FILE]", help="A new file.")] = Path("study.yaml"),
) -> None:
    """Write a short study that explains itself, to start from."""
    with options.one_sentence():
        try:
            with to.open("x") as file:
                file.write(EXAMPLE)
        except OSError as error:
            raise SpecError(f"{to} cannot be written ({error.strerror}): name another") from None
        typer.echo(f"Written to {to}; edit it, then: papa check {to}")
