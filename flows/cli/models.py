"""``papa models``: the architectures that studies support, and those that papa.ablated takes."""

import typer

from papa.flows.cli import options
from papa.models.architectures import Outcome, read_architectures
from papa.models.reference import DECODERS, EMBEDDED
from papa.models.supported import FAMILIES


def models() -> None:
    """List the architectures that studies support, and those that papa.ablated takes."""
    with options.one_sentence():
        families = [
            (family.name, ", ".join(family.model_types), family.note) for family in FAMILIES
        ]
        families.append(("decoders", ", ".join(DECODERS), "with their native head only"))
        options.print_table(("Family", "Architectures", "Note"), families)
        typer.echo(f"Give a hub name or a local folder; embedded: {EMBEDDED}")
        by_outcome: dict[Outcome, list[str]] = {}
        for row in read_architectures():
            name = f"{row.model_type} ({row.part})" if row.part else row.model_type
            by_outcome.setdefault(row.outcome, []).append(name)
        listed = (Outcome.PASSES, Outcome.PARTLY, Outcome.REFUSED)
        rows = [(outcome.value, ", ".join(by_outcome[outcome])) for outcome in listed]
        options.print_table(("Tests", "Architectures"), rows)
        typer.echo("For papa.ablated, with any task head; names in parentheses are values of part=")
