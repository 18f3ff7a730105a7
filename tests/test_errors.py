"""What messages say where several things are wrong, or many names exist."""

from papa.errors import CheckError, DataError, Problem, SpecError, nearest_first


def test_a_reason_of_two_keys_is_said_once() -> None:
    gone = DataError("the file is gone", "a row has no label")
    other = SpecError("it is missing")
    problems = [Problem("tasks.0", gone), Problem("tasks.1", gone), Problem("name", other)]
    assert CheckError(problems).reasons == (
        "tasks.0, tasks.1: the file is gone",
        "tasks.0, tasks.1: a row has no label",
        "name: it is missing",
    )


def test_a_reason_names_all_of_its_many_keys() -> None:
    problems = [Problem(f"tasks.{index}", DataError("the file is gone")) for index in range(60)]
    (reason,) = CheckError(problems).reasons
    assert reason.count("tasks.") == 60


def test_many_names_are_listed_whole_nearest_first() -> None:
    names = [f"column {number}" for number in range(90)]
    *listed, rest = nearest_first("column 42", names).split(", ")
    assert listed[0] == "column 42"
    assert {*listed} < {*names}
    assert rest == "…"
    assert nearest_first("a", ["a" * 400]).startswith("aaa")
