"""Values that nobody would write on purpose, for the leaves of documents."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

ODD_TEXT = st.one_of(
    st.sampled_from(
        [
            "", " ", "~", "~nosuchuser", "~nosuchuser/x", "\0", "a\0b", "/tmp/\0", "\ud800",
            "x" * 300, "/" + "x/" * 3000, "x" * 5000, "../../..", "/dev/null", "nan", "1e400", "٣",
            "a\nb", "\x1b[31mred", "\u202egnp", "null", "[]", "{}", "9" * 4000, "*", "a/b/c",
            "--version",
        ]
    ),
    st.text(max_size=20),
)  # fmt: skip
ODD_NUMBERS = st.one_of(
    st.sampled_from(
        [0, -1, 10**9, 2**31, 2**63, 2**64, 10**30, 10**400, 0.0, -0.0, 1e300, 1e-320, 0.5, 1.5]
    ),
    st.sampled_from([float("nan"), float("inf"), float("-inf")]),
    st.integers(),
    st.floats(),
)
ODD_SCALARS: st.SearchStrategy[Any] = st.one_of(st.none(), st.booleans(), ODD_NUMBERS, ODD_TEXT)
ODD_VALUES: st.SearchStrategy[Any] = st.recursive(
    ODD_SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(ODD_TEXT, st.integers(), st.none(), st.booleans()), inner, max_size=4
        ),
    ),
    max_leaves=8,
)


def places(document: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document of lists and mappings, containers included."""
    found = [above] if above else []
    items = (
        enumerate(document)
        if isinstance(document, list)
        else document.items()
        if isinstance(document, dict)
        else ()
    )
    for key, value in items:
        found += places(value, (*above, key))
    return found


GONE = object()


def put(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of the document with another value at a place, or with none where it is ``GONE``; a
    place that is not there any more is left out.
    """
    if not place:
        return document if value is GONE else value
    key, *rest = place
    if isinstance(document, list):
        changed = put(dict(enumerate(document)), place, value)
        return [changed[index] for index in range(len(document)) if index in changed]
    if not isinstance(document, dict) or (rest and key not in document):
        return document
    if rest:
        return {**document, key: put(document[key], tuple(rest), value)}
    others = {name: one for name, one in document.items() if value is not GONE or name != key}
    return others if value is GONE else {**others, key: value}


@st.composite
def changed(draw: st.DrawFn, document: Any, most: int = 3) -> Any:
    """The document with some of its values replaced, keys added and keys removed."""
    for _ in range(draw(st.integers(1, most))):
        place = draw(st.sampled_from(places(document) or [()]))
        match draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"])):
            case "replace":
                document = put(document, place, draw(ODD_VALUES))
            case "remove":
                document = put(document, place, GONE)
            case _:
                key = draw(
                    st.one_of(
                        ODD_TEXT,
                        st.sampled_from(["name", "kind", "labels", "corpus", "train_rows"]),
                    )
                )
                document = put(document, (*place[:-1], key), draw(ODD_VALUES))
        if not isinstance(document, dict | list):
            break
    return document
