"""``papa models``: the architectures that studies support, and those that papa.ablated takes."""

from papa.flows.cli import options
from papa.models.architectures import Outcome, read_architectures
from papa.models.reference import DECODERS, EMBEDDED
from papa.models.supported import FAMILIES


def models() -> None:
    """List the architectures that studies support, and those whose heads papa.ablated replaces."""
    with options.one_sentence():
        families = [
            (family.name, ", ".join(family.model_types), family.note) for family in FAMILIES
        ]
        families.append(("decoders", ", ".join(DECODERS), "with their native head only"))
        hub = f"Give a hub name or a local folder; embedded: {EMBEDDED}"
        options.print_table(("Family", "Architectures", "Note"), families, caption=hub)
        by_outcome: dict[Outcome, list[str]] = {}
        for row in read_architectures():
            name = f"{row.model_type} ({row.part})" if row.part else row.model_type
            by_outcome.setdefault(row.outcome, []).append(name)
        listed = (Outcome.PASSES, Outcome.PARTLY, Outcome.REFUSED)
        rows = [(outcome.value, ", ".join(by_outcome[outcome])) for outcome in listed]
        caption = "For papa.ablated, with any task head; a name in parentheses is a value of part="
        options.print_table(("Tests", "Architectures"), rows, caption=caption)
