"""Entities in a sequence of IOB tags, as conlleval and seqeval's default mode read them."""

from collections.abc import Sequence

Entity = tuple[str, int, int]
"""(type, first word, last word)."""


def entities_of(tags: Sequence[str]) -> set[Entity]:
    """Return the entities of a sentence's tags, such as B-PER, I-PER, O, and E- and S- of IOBES.

    The first letter of a tag is its prefix, what follows the hyphen its type. An entity ends where
    the next tag does not continue it, and an I- that continues none begins one. Bare tags (POS)
    are read so, too: NOUN is prefix N and type OUN. The authors' code scores POS so.

    Examples:
        >>> sorted(entities_of(["B-PER", "I-PER", "O", "I-LOC"]))
        [('LOC', 3, 3), ('PER', 0, 1)]
    """
    entities: set[Entity] = set()
    prefix_before = "O"
    type_before = ""
    first = 0
    for position, tag in enumerate([*tags, "O"]):
        prefix = tag[0]
        entity_type = tag[1:].split("-", maxsplit=1)[-1] or "_"
        is_other_type = entity_type != type_before
        # conlleval treats "." like O.
        ends = (
            prefix_before in "ES"
            or (prefix_before in "BI" and prefix in "BSO")
            or (prefix_before not in "O." and is_other_type)
        )
        begins = (
            prefix in "BS"
            or (prefix in "EI" and prefix_before in "ESO")
            or (prefix not in "O." and is_other_type)
        )
        if ends:
            entities.add((type_before, first, position - 1))
        if begins:
            first = position
        prefix_before = prefix
        type_before = entity_type
    return entities
