"""What in a study does not fit its tasks, each with its key."""

from pathlib import Path

import pytest

from papa.ranking.orders import HEAD_ORDERS, SCORING_METHODS
from papa.spec.file import resolve_study
from papa.tasks.misfits import find_misfits
from tests.spec.documents import TEXT_TASK

NATIVE = TEXT_TASK | {"head": "native"}
DECODER = NATIVE | {
    "kind": "causal",
    "columns": {"text": "a"},
    "metric": "negative_log_perplexity",
}
PAIRS = NATIVE | {"kind": "pair", "columns": {"text": "a", "text_pair": "b", "label": "c"}}


def misfits_of(**settings: object) -> list[tuple[str, str]]:
    document = {"name": "s", "encoders": ["a/b"], "tasks": [TEXT_TASK], **settings}
    study = resolve_study(document, folder=Path(), origin="test")
    return [(problem.where, str(problem.error)) for problem in find_misfits(study, [])]


@pytest.mark.parametrize(
    ("task", "settings", "key", "named"),
    [
        (DECODER, {"substitutes": ["average", "next"]}, "substitutes.1 (next)", "mine"),
        (DECODER | {"validation_slots": 32}, {}, "substitutes.0 (average)", "validation_slots 32"),
        (NATIVE, {"substitutes": ["trained"]}, "substitutes.0 (trained)", "head: native"),
        (PAIRS, {"layout": {"segment_ids": "stay"}}, "layout", "mine"),
        (TEXT_TASK, {"orders": ["lambda", "sink_share"]}, "orders.1", "sink_share"),
        (TEXT_TASK, {"orders": ["causal_gates"]}, "orders.0", "mine"),
        (NATIVE | {"metric": "agreement"}, {"orders": ["gradient"]}, "orders.0", "agreement"),
        (DECODER, {"orders": ["self_lambda"]}, "orders.0", "causal"),
        (TEXT_TASK, {"orders": ["reversed:lamda"]}, "orders.0", "(did you mean 'lambda'?)"),
    ],
)
def test_what_does_not_fit_is_named_with_its_key(
    task: dict[str, object], settings: dict[str, object], key: str, named: str
) -> None:
    ((where, reason),) = misfits_of(tasks=[task], **settings)
    assert where == key
    assert named in reason


def test_each_order_that_is_unknown_is_named() -> None:
    found = misfits_of(orders=["lamda", "random", "distanc"])
    assert [where for where, _ in found] == ["orders.0", "orders.2"]
    assert all(
        name in reason for name, (_, reason) in zip(("lamda", "distanc"), found, strict=True)
    )


@pytest.mark.parametrize(
    ("task", "impossible"),
    [
        (TEXT_TASK, {"sink_share", "causal_gates"}),
        (NATIVE | {"metric": "agreement"}, {"sink_share", "causal_gates", "gradient"}),
        (DECODER, {"sink_share", "self_lambda"}),
    ],
)
def test_orders_that_are_suggested_are_possible(
    task: dict[str, object], impossible: set[str]
) -> None:
    ((_, reason),) = misfits_of(tasks=[task], orders=["nothing"])
    listed = {*reason.partition("give one of ")[2].partition(", scores:")[0].split(", ")}
    assert listed == {*HEAD_ORDERS, *SCORING_METHODS} - impossible
