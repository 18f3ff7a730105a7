"""Studies from YAML: what is resolved, what is overridden, what is refused and how."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import papa
from papa.errors import CheckError, SpecError
from papa.ranking.orders import draws_of, head_order
from papa.spec import Order, StudySpec
from papa.spec.file import load_study
from papa.spec.orders import Cell, constant_count, partial_counts

SMALLEST: dict[str, object] = {
    "name": "s",
    "encoders": ["embedded/all-MiniLM-L6-v2"],
    "tasks": ["reviews"],
}
OWN = {
    "name": "mine",
    "kind": "text",
    "source": {"kind": "files", "train": "t.jsonl", "validation": "v.jsonl"},
    "columns": {"text": "a", "label": "b"},
    "metric": "accuracy",
    "slots": 16,
    "probe": {"learning_rate": 0.001, "batch_size": 2, "epochs": 1},
}


def study(folder: Path, document: dict[str, object], *overrides: str) -> StudySpec:
    path = folder / "study.yaml"
    path.write_text(json.dumps(document))
    return load_study(path, overrides)


def test_a_study_in_full(tmp_path: Path) -> None:
    """Names become tasks of the registry, paths absolute, and all else is the paper's."""
    loaded = study(tmp_path, SMALLEST)
    assert loaded.tasks[0].columns.label == "label"
    assert loaded.keep == (1, 0.5, 0.125, 0.0625, 0)
    assert (loaded.orders, [changes.kind for changes in loaded.substitutes]) == (
        ("lambda",),
        ["average"],
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "paper.csv").write_text("")
    cola = {"name": "cola", "source": OWN["source"], "probe": {"epochs": 1}}
    kinds = ["local", {"kind": "local", "window": 5}, {"kind": "low_rank", "rank": 3}]
    changes = {"tasks": [OWN, cola], "encoders": ["./model"], "reference": "paper.csv"}
    overrides = ("probe_seeds=[1, 2]", "tasks.0.train_rows=10", "execution.workers=3")
    loaded = study(
        tmp_path, SMALLEST | changes | {"probe_seeds": [7], "substitutes": kinds}, *overrides
    )
    assert loaded.tasks[0].source.train == tmp_path / "t.jsonl"
    assert loaded.encoders[0].name == str(tmp_path / "model")
    assert loaded.reference == tmp_path / "paper.csv"
    task = loaded.tasks[1]
    assert (task.source.kind, task.metric) == ("files", "matthews"), "another source alone"
    assert (task.probe.epochs, task.probe.batch_size) == (1, 16)
    assert (loaded.probe_seeds, loaded.tasks[0].train_rows) == ((1, 2), 10), (
        "--set wins over the file"
    )
    assert loaded.execution.workers == 3
    assert [constants.label for constants in loaded.substitutes] == [
        "local:2",
        "local:5",
        "low_rank:3:0",
    ]
    assert study(tmp_path, loaded.model_dump(mode="json")) == loaded


def test_one_switch_sets_all_of_the_authors(tmp_path: Path) -> None:
    document = SMALLEST | {
        "tasks": ["cola", "pos", "ner", OWN],
        "substitutes": [{"kind": "average", "corpus": "sst2"}],
    }
    theirs = document | {"as_the_authors_ran": True}
    plain = study(tmp_path, document)
    as_authors = study(tmp_path, theirs)
    assert as_authors.layout.model_dump() == {"one_text_truncation": "half", "segment_ids": "stay"}
    assert all(task.probe.encoder_dropout for task in as_authors.tasks)
    assert (plain.ranking_seeds, as_authors.ranking_seeds) == ((0, 1, 2), (0,))
    metrics = ["matthews", "bare_entity_f1", "entity_f1", "accuracy"]
    assert [task.metric for task in as_authors.tasks] == metrics
    # Nothing else differs, and the resolved study is a study file of its own.
    spelled_out = [task.model_dump(mode="json") for task in plain.tasks]
    for task, metric in zip(spelled_out, metrics, strict=True):
        task["metric"] = metric
        task["probe"]["encoder_dropout"] = True
    assert study(tmp_path, document | {"tasks": spelled_out}).tasks == as_authors.tasks
    assert study(tmp_path, as_authors.model_dump(mode="json")) == as_authors
    assert study(tmp_path, document | {"as_the_authors_ran": False}) == plain
    # What a study says itself wins.
    entry = {"name": "pos", "metric": "token_f1", "probe": {"encoder_dropout": False}}
    changes = {"layout": {"segment_ids": "follow"}, "tasks": [entry, "cola"]}
    as_authors = study(tmp_path, theirs | changes)
    assert (as_authors.layout.one_text_truncation, as_authors.layout.segment_ids) == (
        "half",
        "follow",
    )
    assert [task.metric for task in as_authors.tasks] == ["token_f1", "matthews"]
    assert [task.probe.encoder_dropout for task in as_authors.tasks] == [False, True]
    by_option = study(tmp_path, SMALLEST, "as_the_authors_ran=true", "layout.segment_ids=follow")
    assert by_option.layout == as_authors.layout


def test_a_random_order_is_drawn_for_each_seed_and_any_other_is_shared(tmp_path: Path) -> None:
    loaded = study(tmp_path, SMALLEST | {"probe_seeds": [0, 3], "ranking_seeds": [7]})
    assert draws_of(loaded, "random") == {(0,): (7, 0), (3,): (7, 3)}
    for order in ("lambda", "reversed:lambda", "first_to_last", "distance"):
        assert draws_of(loaded, order) == {(0, 3): ()}


DECODER = OWN | {
    "kind": "causal",
    "columns": {"text": "a"},
    "metric": "agreement",
    "head": "native",
}
SIMILAR = {"kind": "similarity", "metric": "cosine_spearman", "head": "native"}
SIMILAR = OWN | SIMILAR | {"columns": {"text": "a", "text_pair": "b"}}
BY_SLOT = "average has one matrix for 16 slots, and task mine has validation_slots 32"
NO_RATE = {"batch_size": 1, "epochs": 1}


def of_task(*tasks: dict[str, object], **settings: object) -> dict[str, object]:
    return {"tasks": [*tasks], **settings}


REFUSED: list[tuple[dict[str, object] | str, str]] = [
    (of_task(DECODER | {"columns": OWN["columns"]}), "of kind 'causal' reads text: name"),
    (
        of_task(DECODER | {"head": "probe"}),
        "set head: native",
    ),
    (of_task(DECODER | {"metric": "f1"}), "by negative_log_perplexity, agreement, not 'f1'"),
    (
        of_task(DECODER, substitutes=["next"]),
        "next is for encoders, and task mine is for a decoder",
    ),
    (of_task(DECODER | {"validation_slots": 32}), BY_SLOT),
    (of_task(SIMILAR), "'similarity' reads text, text_pair, label"),
    (of_task(OWN | {"metric": "cosine"}), "with head: probe is scored by accuracy, matthews, f1"),
    (
        of_task(OWN | {"head": "native"}, substitutes=["trained"]),
        "needs PAPA's own probe",
    ),
    ({"hue": 1}, "unknown key 'hue': correct it, or leave it out"),
    (of_task(OWN | {"colum": {}}), "unknown key 'tasks.0.colum'"),
    ({"as_the_authors_ran": "yes"}, "'as_the_authors_ran' is 'yes': use true or"),
    (of_task(OWN | {"probe": NO_RATE}), "'tasks.0.probe.learning_rate': Field required"),
    ({"tasks": ["colla"]}, "task 'colla' is unknown (did you mean 'cola'?): "),
    ({"tasks": ["colla"]}, "'papa init' writes an example"),
    ({"substitutes": ["avarage"]}, "found 'avarage' (did you mean 'average'?"),
    (of_task(OWN | {"source": {"train": "a"}}), "'tasks.0.source': Unable to extract tag"),
    (of_task(OWN | {"source": {"kind": "file"}}), "found 'file' (did you mean 'files'?)"),
    ({"precision": "float16"}, "'float32', 'bfloat16' or 'auto', found 'float16'"),
    ({"name": "my study!"}, "'name': String should match pattern "),
    ({"name": "a.YAML"}, "'name': a store has its own files with this ending"),
    ({"keep": [1.5]}, "'keep.0': Input should be less than or equal to 1, found 1.5"),
    ({"probe_seeds": []}, "'probe_seeds': Tuple should have at least 1 item"),
    ({"ranking_seeds": [1, 1]}, "'ranking_seeds': 1 is listed twice"),
    (of_task(OWN, OWN), "'mine' is listed twice"),
    (
        {"substitutes": [{"kind": "local", "rank": 3}]},
        "rank belongs to kind 'low_rank', not 'local'",
    ),
    ({"reference": "nowhere.csv"}, "'reference': Path does not point to a file, found '/"),
    ("probe_seeds", "--set probe_seeds: expected KEY=VALUE, such as execution.workers=2"),
    ("tasks.4.slots=8", "'4' is no key or index of ['reviews']"),
    ("probe_seeds.0.x=1", "--set probe_seeds.0.x=1: 'x' is no key or index of 7"),
    ("name.x=1", "study.yaml: 'name': Input should be a valid string"),
    ("execution.worker=1", "unknown key 'execution.worker' (did you mean 'workers'?)"),
    ("tasks.0.train=8", "unknown key 'tasks.0.train' (did you mean 'train_rows'?)"),
]
"""A change of a study that is sound, or an override of it, and what is said."""


@pytest.mark.parametrize(("change", "expected"), REFUSED)
def test_what_is_wrong_is_named_in_one_sentence(
    tmp_path: Path, change: dict[str, object] | str, expected: str
) -> None:
    changes, overrides = ({}, [change]) if isinstance(change, str) else (change, [])
    with pytest.raises(SpecError, match=re.escape(expected)) as raised:
        study(tmp_path, SMALLEST | {"probe_seeds": [7]} | changes, *overrides)
    assert str(raised.value).startswith((str(tmp_path / "study.yaml"), "--set "))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("task", [OWN, DECODER, OWN | {"head": "native"}])
def test_what_the_refused_ones_differ_from_is_sound(
    tmp_path: Path, task: dict[str, object]
) -> None:
    assert study(tmp_path, SMALLEST | {"tasks": [task]}).tasks[0].slots == 16


def test_everything_that_is_wrong_is_told_together(tmp_path: Path) -> None:
    change = {
        "encoders": ["embedded/all-MiniLM-L6-v2", 7],
        "tasks": [{"name": "reviews", "slots": 33, "sluts": 32, "probe": {"epochs": "four"}}],
        "ordrs": ["lambda"],
        "execution": 3,
    }
    with pytest.raises(CheckError) as raised:
        study(tmp_path, SMALLEST | change)
    problems = [
        problem.partition("study.yaml: ")[2] for problem in str(raised.value).split("\n")[1:]
    ]
    for expected in (
        "'encoders.1': Input should be a valid dictionary",
        "unknown key 'tasks.0.sluts' (did you mean 'slots'?)",
        "'tasks.0.slots': Input should be a multiple of 2, found 33",
        "'tasks.0.probe.epochs': Input should be a valid integer",
        "unknown key 'ordrs' (did you mean 'orders'?)",
        "'execution': Input should be a valid dictionary",
    ):
        assert [sentence for sentence in problems if sentence.startswith(expected)], (
            expected,
            problems,
        )
    assert len(problems) == 6
    assert isinstance(raised.value, SpecError)


NO_STUDY = {
    "- 1": r"is not a study file",
    "": "is not a study file",
    "a: &a [x]\nb: *a": "is not YAML: .*an alias is not read: write the value out",
    "name: a\ntasks: []\nname: b\n": "is not YAML: .*'name' stands there a second time",
    "[" * 50_000: "is not YAML",
    "a: 2020-13-45": "is not YAML",
    "a: " + "9" * 5_000: "is not YAML",
    "a: !!python/object/apply:os.system [true]": "is not YAML",
    "a: \0": "is not YAML",
    "a: [": "is not YAML",
}


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    for text, message in NO_STUDY.items():
        path.write_text(text)
        with pytest.raises(SpecError, match=rf"^{re.escape(str(path))} {message}") as refused:
            load_study(path)
        assert len(str(refused.value)) < 500
    with pytest.raises(SpecError, match=r"no study file at .*deom\.yaml \(did you mean 'demo'\?\)"):
        load_study(tmp_path / "deom.yaml")


@pytest.mark.parametrize("number", ["010", "-010", "1:4", "1:30.5"])
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("probe_seeds: [1, {}]", "probe_seeds.1"),
        ("probe_seeds:\n- 1\n- {}", "probe_seeds.1"),
        ("tasks:\n- name: cola\n  probe:\n    epochs: {}", "tasks.0.probe.epochs"),
    ],
)
def test_numbers_in_base_8_or_60_are_refused_by_key(
    tmp_path: Path, text: str, key: str, number: str
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text.format(number))
    with pytest.raises(SpecError) as refused:
        load_study(path)
    for expected in (str(path), f"'{key}'", number):
        assert expected in str(refused.value)
    with pytest.raises(SpecError, match=re.escape(f"--set {key}={number}")):
        study(tmp_path, SMALLEST, f"{key}={number}")


@pytest.mark.parametrize("name", ["'010'", '"1:4"', "a:b", "0x1", "00a"])
def test_texts_that_look_like_such_numbers_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "study.yaml"
    written = json.dumps(SMALLEST | {"tasks": [OWN]}).replace('"a"', name.replace("0x1", "'0x1'"))
    path.write_text(written)
    assert load_study(path).tasks[0].columns.text == name.strip("'\"")


LAYERS = 3
HEADS = 4
SCORES = np.random.default_rng(0).random((LAYERS, HEADS))


def test_files_as_others_write_them(tmp_path: Path) -> None:
    """Duo attention's training ends in ``numpy.savetxt`` with tabs; retrieval heads' detection
    appends a score a sample under ``"layer-head"`` and dumps the dictionary.
    """
    file = tmp_path / "full_attention_heads.tsv"
    np.savetxt(file, SCORES, delimiter="\t")
    scores = papa.load_scores(file)
    assert scores.columns.tolist() == ["layer", "head", "method", "score", "low", "high"]
    assert np.array_equal(scores["score"], SCORES.ravel())
    assert set(scores["method"]) == {file.name}
    assert papa.constant_heads(scores, keep=1 - 1 / 12) == (divmod(int(SCORES.argmin()), HEADS),)
    lists = {
        f"{layer}-{head}": [score + sample for sample in range(5)]
        for (layer, head), score in np.ndenumerate(SCORES)
    }
    (tmp_path / "llama.json").write_text(json.dumps(lists))
    assert np.allclose(papa.load_scores(tmp_path / "llama.json")["score"], SCORES.ravel() + 2)


@pytest.mark.parametrize("form", ["npy", "csv", "json", "txt"])
def test_head_scores_are_read_from_every_form(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"scores.{form}"
    if form == "npy":
        np.save(file, SCORES.astype(np.float32))
    elif form == "json":
        file.write_text(json.dumps(SCORES.tolist()))
    else:
        np.savetxt(file, SCORES, delimiter="," if form == "csv" else " ")
    assert papa.load_scores(file)["score"].to_numpy() == pytest.approx(SCORES.ravel())


@pytest.mark.parametrize("array", [SCORES[0], SCORES[None], np.array([["a"]]), np.array([{}])])
def test_arrays_of_another_kind_are_no_head_scores(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "scores.npy", array)
    with pytest.raises(papa.PapaError, match=re.escape(str(tmp_path / "scores.npy"))):
        papa.load_scores(tmp_path / "scores.npy")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\t2\n3", r"\(.* changed from 2 to 1 "),
        ("1\tnan", r"the score of head \(0, 1\)"),
        ("layer\thead\n0\t1", "'layer'"),
        ("layer,head,score\n0,0,1", "'layer'"),
        ('{"0": {"0": 1}}', ""),
        ("[[1, 2], [3]]", ""),
        ("[1, 2]", "1 dimensions"),
        ("", "index out of range"),
        ("{0: 1", "Expecting property name"),
        ("{}", ""),
        ('{"0": [1, 2]}', ""),
        ('{"0-0": [1], "0-1": [1], "1-1": [1]}', r"the score of head \(1, 0\)"),
        ('{"0-0": ["x"]}', ""),
    ],
)
def test_what_is_no_file_of_scores(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "scores").write_text(text)
    with pytest.raises(papa.PapaError, match=f"cannot be read as head scores .*{message}"):
        papa.load_scores(tmp_path / "scores")
    with pytest.raises(papa.PapaError, match="cannot be read as head scores"):
        papa.load_scores(tmp_path)


HALF = Cell("encoder", "task", "average", "lambda", 0.5)


def test_fractions_in_whole_heads() -> None:
    """BERT-base has 144 heads, and all-MiniLM-L6-v2 72: 1/16 of them are 4.5."""
    fractions = (1, 1 / 2, 1 / 8, 1 / 16, 0)
    assert [constant_count(fraction, 144) for fraction in fractions] == [0, 72, 126, 135, 144]
    assert [constant_count(fraction, 72) for fraction in fractions] == [0, 36, 63, 68, 72]
    # 0.999 of 72 heads are all of them, and 0.06 and 1/16 leave 4 each.
    counts = partial_counts((1.0, 0.999, 0.5, 0.06, 0.0625, 0.001, 0.0), 72)
    assert counts == {0.5: 36, 0.06: 68, 0.0625: 68}


def test_cells_share_a_result_where_constants_or_order_change_nothing() -> None:
    def results(fraction: float) -> int:
        kinds: list[str] = ["average", "zeros"]
        orders: list[Order] = ["lambda", "random", "first_to_last"]
        cells = (
            Cell("encoder", "task", kind, order, fraction) for kind, order in product(kinds, orders)
        )
        return len({cell.result() for cell in cells})

    assert [results(fraction) for fraction in (1.0, 0.5, 0.0)] == [1, 6, 2]
    assert HALF.result() == HALF
    for difference in ({"encoder": "other"}, {"task": "other"}, {"fraction": 0.25}):
        assert replace(HALF, **difference).result() != HALF.result()


def test_fractions_that_make_equally_many_heads_constant_share_a_result() -> None:
    def in_heads(fraction: float) -> Cell:
        return replace(HALF, fraction=fraction).result(72)

    assert in_heads(0.06) == in_heads(0.0625)
    assert in_heads(0.999) == in_heads(1.0) == Cell("encoder", "task", "", "", 1.0)
    assert in_heads(0.001) == in_heads(0.0) == Cell("encoder", "task", "average", "", 0.0)
    assert replace(HALF, fraction=0.06).result() != replace(HALF, fraction=0.0625).result()
    rounded = {**vars(HALF), "fraction": 0.333333}
    assert Cell.from_row(rounded) == Cell.from_row({**rounded, "fraction": 1 / 3})
    assert Cell.from_row(rounded) != Cell.from_row(vars(HALF)) == HALF


def test_ties_go_by_layer_and_head_and_a_reversed_order_reverses_them() -> None:
    scores = np.array([[0.3, 0.1], [0.1, 0.9]])
    assert head_order("lambda", scores, 2, 2) == [(0, 1), (1, 0), (0, 0), (1, 1)]
    assert head_order("reversed:lambda", scores, 2, 2) == [(1, 1), (0, 0), (1, 0), (0, 1)]
    assert head_order("first_to_last", None, 2, 2) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert head_order("last_to_first", None, 2, 2) == [(1, 0), (1, 1), (0, 0), (0, 1)]


RENAMED: list[tuple[dict[str, object], str, str]] = [
    ({"constants": ["zeros"]}, "constants", "substitutes"),
    ({"fractions": [1, 0]}, "fractions", "keep"),
    ({"seeds": [0, 1]}, "seeds", "probe_seeds"),
    ({"ranking": {"seeds": [0]}}, "ranking.seeds", "ranking_seeds"),
    ({"tasks": [{"name": "cola", "head": "own"}]}, "head: own", "head: native"),
    ({"tasks": [{"name": "cola", "own_probe": "a:b"}]}, "own_probe", "custom_probe"),
    ({"orders": ["lambda_reversed"]}, "lambda_reversed", "reversed:lambda"),
]


@pytest.mark.parametrize(("keys", "earlier", "today"), RENAMED)
def test_an_earlier_name_is_told_todays(
    tmp_path: Path, keys: dict[str, object], earlier: str, today: str
) -> None:
    with pytest.raises(SpecError) as error:
        study(tmp_path, SMALLEST | keys)
    assert f"{earlier}'" in str(error.value)
    assert f"'{today}'" in str(error.value)
