"""What a message says where several things are wrong."""

from papa.errors import CheckError, DataError, Problem, SpecError


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
