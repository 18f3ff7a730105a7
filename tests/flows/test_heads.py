"""How many heads may become constant: what an interval says, and how it is told; scores of heads
that ``papa heads`` writes, and takes from others.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import papa
from flows.drops import Answer, Count, parse_share
from flows.heads import document_of, text_of
from papa.errors import SpecError
from papa.reporting.drops import Verdict, verdict_on
from papa.scores.intervals import Interval
from papa.study.rank import Rank, read_lambda
from papa.study.store import Store
from tests.finished import Scored, score_study
from tests.flows.conftest import SMALL, said, write_study


def count(constant_heads: int, low: float, high: float, *, all_within: bool = True) -> Count:
    drop = Interval((low + high) / 2, low, high, 3)
    verdict = verdict_on(drop, 0.01, all_within=all_within)
    heads = tuple(divmod(number, 12) for number in range(constant_heads))
    return Count(constant_heads, 1 - constant_heads / 72, drop, verdict, heads)


def answer(
    *counts: Count, reason: str = "", missing: int = 0, sharing: int | None = None
) -> Answer:
    line = "minilm", "reviews", "average", "lambda"
    return Answer(*line, 72, counts, "", missing, reason, sharing)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.002, 0.009, "within"),
        (-0.01, 0.01, "within"),
        (-0.002, 0.011, "undecided"),
        (0.011, 0.02, "beyond"),
        (0.01, 0.02, "undecided"),
        (math.nan, math.nan, "undecided"),
    ],
)
def test_the_whole_interval_must_be_within_the_drop(
    low: float, high: float, verdict: Verdict
) -> None:
    assert verdict_on(Interval(0.0, low, high, 3), 0.01, all_within=True) == verdict


def test_the_most_is_the_largest_number_that_is_surely_within() -> None:
    found = answer(
        count(9, -0.02, 0.001),
        count(18, -0.01, 0.005),
        count(36, -0.01, 0.03),
        count(72, 0.05, 0.09),
    )
    assert found.most is not None
    assert found.most.constant_heads == 18
    assert [one.constant_heads for one in found.undecided] == [36]


def test_no_number_is_within_where_a_smaller_one_is_not() -> None:
    found = answer(count(9, -0.02, 0.02), count(18, -0.01, 0.005, all_within=False))
    assert found.most is None
    assert [one.verdict for one in found.counts] == ["undecided", "undecided"]
    assert (
        "18 of 72: cannot tell: drop -0.2 % (-1.0 to 0.5 %), but fewer are not known to be within"
        in text_of(found, 0.01)
    )


def test_what_is_shown() -> None:
    text = text_of(
        answer(count(18, -0.01, 0.005), count(36, -0.01, 0.03), count(72, 0.05, 0.09), missing=2),
        0.01,
    )
    assert text.splitlines() == [
        "minilm · reviews · average · λ ascending, within a drop of 1 % on these validation rows:",
        "  18 of 72 heads may become constant: drop -0.2 % (-1.0 to 0.5 %)",
        "  which, layers and heads counted from 0:",
        "    layer 0: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11",
        "    layer 1: 0, 1, 2, 3, 4, 5",
        "  36 of 72: cannot tell: drop 1.0 % (-1.0 to 3.0 %); more seeds or rows help",
        "  72 of 72: too many: drop 7.0 % (5.0 to 9.0 %)",
        "  2 of its cells are not finished: 'papa run' on the study goes on",
    ]
    assert all(len(line) <= 80 for line in text.splitlines()[1:])


def test_keys_of_a_decoder_are_saved_where_all_heads_that_share_them_are_constant() -> None:
    found = answer(count(18, -0.01, 0.005), sharing=4)
    assert found.key_heads == (4, 18), "of the last, two heads are not constant"
    assert "  4 of 18 heads of keys need no cache then" in text_of(found, 0.01).splitlines()
    assert document_of(found)["key_heads"] == (4, 18)
    assert answer(count(18, -0.01, 0.005), sharing=1).key_heads == (18, 72)
    assert answer(count(18, -0.01, 0.005)).key_heads is None
    assert answer(count(18, 0.05, 0.09), sharing=4).key_heads is None


def test_where_nothing_can_be_told_it_says_why() -> None:
    reason = "one seed has no interval: give the study more seeds"
    one_seed = answer(count(18, math.nan, math.nan), reason=reason)
    assert one_seed.most is None
    assert f"the study cannot tell: {reason}" in text_of(one_seed, 0.01)
    assert document_of(one_seed)["constant_heads"] is None
    assert document_of(one_seed)["counts"][0]["drop_high"] is None, "nan is no JSON"
    assert "is known to stay within it" in text_of(answer(count(18, 0.05, 0.09)), 0.01)
    assert "no cell with constant heads is finished" in text_of(answer(missing=3), 0.01)


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("0.5 %", 0.005), ("0.02", 0.02), ("0", 0.0)]
)
def test_shares(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["1", "-1%", "100%", "one", "", "nan", "%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"--max-drop .*: give a percentage such as 1%"):
        parse_share(text)


@pytest.fixture(scope="module")
def finished(shallow: str, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    """What a study makes but for the report."""
    folder = tmp_path_factory.mktemp("finished")
    document = {**SMALL, "encoders": [shallow], "fractions": [1, 0.5]}
    write_study(folder, document)
    return score_study(document, folder, folder / "store")


def heads(finished: Scored, *options: str, store: Store | None = None) -> tuple[int, str]:
    file = finished.store.root.with_name("study.yaml")
    place = ("--store", (store or finished.store).address)
    found = said("heads", str(file), *place, *options)
    return found.code, found.out + found.err


def test_lambda_is_written_and_read_to_the_last_digit(finished: Scored, tmp_path: Path) -> None:
    code, written = heads(finished, "--tsv")
    assert code == 0, written
    (tmp_path / "lambda.tsv").write_text(written)
    (rank,) = (step for step in finished.found if isinstance(step, Rank))
    scores = papa.load_scores(tmp_path / "lambda.tsv", layers=2, heads=12)
    assert np.array_equal(scores["score"], read_lambda({0: finished.found[rank]}).mean.ravel())

    code, again = heads(finished, "--tsv", "--scores", str(tmp_path / "lambda.tsv"))
    assert (code, again) == (0, written)
    code, told = heads(finished, "--tsv", "--json")
    assert code == 1
    assert "--json and --tsv are two forms of one answer" in told


def test_others_scores_say_which_heads_would_become_constant(
    finished: Scored, tmp_path: Path
) -> None:
    file = tmp_path / "duo.tsv"
    np.savetxt(file, np.arange(24.0).reshape(2, 12)[::-1], delimiter="\t")
    code, told = heads(finished, "--scores", str(file))
    assert code == 0, told
    assert f"scores of {file}" in " ".join(told.split())
    assert "12 of 24: not measured" in told
    listed = [line.strip() for line in told.splitlines() if line.startswith("    layer")]
    assert listed == [f"layer 1: {', '.join(map(str, range(12)))}"]

    file.write_text("1\t2\n")
    code, told = heads(finished, "--scores", str(file))
    assert code == 1
    assert "they are of 1 layers of 2 heads" in told


def test_lambda_that_is_not_there(finished: Scored, tmp_path: Path) -> None:
    empty = Store(tmp_path / "empty")
    empty.make()
    code, told = heads(finished, "--tsv", store=empty)
    assert code == 1
    assert "has finished no scores of heads: --tsv prints those of one method" in told
