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
