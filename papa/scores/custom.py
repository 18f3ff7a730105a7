"""The user's own metric, probe, or score of a model's output; a study names it MODULE:NAME."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int, Shaped

from papa.errors import SpecError, in_one_line, meant
from papa.scores.metrics import Scored, positive_class, score_predictions
from papa.spec import TaskSpec
from papa.spec.orders import REVERSED, SCORES

Score = Callable[[np.ndarray, np.ndarray, np.ndarray], Scored]
"""From predictions [n], labels [n], and how many labels each row has [rows], to their score."""
CustomMetric = Callable[[np.ndarray, np.ndarray], float]
"""From the true and the predicted classes [n], as scikit-learn's metrics have them, to a number."""
CustomScore = Callable[[Any, Mapping[str, Any]], Any]
"""From a model's output and the arguments of its call to a number for each text [texts], the larger
the better. Models differ in both, and numbers may be a tensor, an array or a list.
"""
RequestedScore: TypeAlias = str | CustomScore
"""What an in-memory model is scored by: the name of a metric, or a function."""


def custom_name(code: object) -> str:
    """Return the name of a custom metric or score in results: with "sklearn:" before it if it is
    scikit-learn's, whose ranges are known.
    """
    name = getattr(code, "__name__", "")
    home = "sklearn" if str(getattr(code, "__module__", "")).startswith("sklearn.") else "custom"
    return f"{home}:{name}" if name.isidentifier() else "custom"


@dataclass(frozen=True)
class NamedCode:
    """Code that a study names, as MODULE:NAME.

    The text of its file travels to the workers with the step that needs it, and is run at the first
    call, as a module that nothing else can import. ``source_code`` is None if the command line did
    not give the file: such code has a key, but cannot be run.
    """

    name: str
    digest: str
    source_code: str | None

    def load(self) -> Any:
        """Return what the file defines under the name: a function, a class or an estimator."""
        module, _, name = self.name.partition(":")
        if self.source_code is None:
            raise SpecError(missing_code_message(self.name))
        definitions = vars(_run_module(module, self.source_code))
        if name not in definitions:
            raise SpecError(
                f"{self.name}: {module}.py defines no {name}{meant(name, definitions)}: correct "
                "one of them"
            )
        return definitions[name]

    def __call__(self, *arguments: object) -> Any:
        return self.load()(*arguments)


@lru_cache(maxsize=16)
def _run_module(name: str, source_code: str) -> ModuleType:
    """Run source code as a module, once a process."""
    module = ModuleType(name)
    try:
        exec(compile(source_code, f"{name}.py", "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {in_one_line(Exception(error))}"
        raise SpecError(
            f"--code {name}.py fails ({reason}): correct it; it can import installed packages, but "
            "no files beside it"
        ) from error
    return module


def load_code(code: Any) -> Any:
    """Return custom code; code that a study names is loaded from its file."""
    return code.load() if isinstance(code, NamedCode) else code


def missing_code_message(name: str) -> str:
    """Return the message for a study that names code without its file."""
    module = name.partition(":")[0]
    return (
        f"the study names the custom code {name}{meant(module, (SCORES, REVERSED[:-1]))}, which "
        "runs only from a file on the command line: "
        f"add --code {module}.py to papa run, check or plan"
    )


@dataclass(frozen=True)
class CustomCode:
    """The custom code of a measurement: objects as they are, or ``NamedCode`` of a study; ``probe``
    is an estimator of scikit-learn's kind (``papa.probes.estimators.check_probe``).
    """

    metric: CustomMetric | None = None
    probe: object = None
    score: CustomScore | None = None

    @cached_property
    def digest(self) -> str | None:
        """The SHA-256 over the files that define the code, and its settings; None if it
        cannot be known: code of a notebook, a function inside another, or settings such as arrays.
        """
        source = _source([self.metric, self.probe, self.score])
        return None if source is None else hashlib.sha256(source.encode()).hexdigest()


def _source(code: object) -> str | None:
    """Return what identifies code: of a function, class or estimator its name, its settings, its
    package's version and the digest of its file; None if something is not known.
    """
    if code is None or isinstance(code, bool | int | float | str):
        return repr(code)
    if isinstance(code, NamedCode):
        return f"{code.name}:{code.digest}"
    if isinstance(code, list | tuple):
        sources = [_source(element) for element in code]
        return None if None in sources else f"{type(code).__name__}{sources}"
    definition: object = code
    settings: str | None = repr("")  # In every digest of code without settings.
    if not hasattr(code, "__qualname__"):
        if not hasattr(code, "get_params"):
            return None
        definition = type(code)
        settings = _source(sorted(code.get_params().items()))
    module = sys.modules[definition.__module__]
    name: str = getattr(definition, "__qualname__")  # noqa: B009
    file = getattr(module, "__file__", None)
    if settings is None or file is None or vars(module).get(name) is not definition:
        return None
    version = getattr(sys.modules[module.__name__.partition(".")[0]], "__version__", "")
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return f"{module.__name__}:{name}:{settings}:{version}:{digest}"


def scorer(task: TaskSpec, names: Sequence[str] | None, code: CustomCode | None) -> Score:
    """Return the function that scores predictions on a task with classes ``names``."""
    if code and code.metric:
        return partial(score_by_custom_metric, code.metric)
    positive = positive_class(task, names)
    return lambda predictions, labels, lengths: score_predictions(
        task.metric, predictions, labels, names, lengths, positive
    )


def score_by_custom_metric(
    metric: CustomMetric,
    predictions: Shaped[np.ndarray, " n"],
    labels: Shaped[np.ndarray, " n"],
    lengths: Int[np.ndarray, " rows"] | None = None,
) -> Scored:
    """Score predictions by a custom metric, and what the score loses without each example: the
    metric is called once with all examples, and once without each.
    """
    name = getattr(metric, "name", None) or getattr(metric, "__name__", type(metric).__name__)

    def value(selected: slice | np.ndarray) -> float:
        true = labels[selected]
        try:
            score = float(metric(true, predictions[selected]))
        except Exception as error:
            raise SpecError(
                f"metric: {name} failed on {len(true)} labels ({error}): it is called with the "
                "true and the predicted classes and must return a number"
            ) from error
        if not math.isfinite(score):
            raise SpecError(
                f"metric: {name} returned {score} on {len(true)} labels, expected a finite number"
            )
        return score

    lengths = np.ones(len(labels), np.int64) if lengths is None else lengths
    example_of_label = np.repeat(np.arange(len(lengths)), lengths)
    total = value(slice(None))
    # An example without a label changes nothing.
    without = [
        value(example_of_label != row) if count else total for row, count in enumerate(lengths)
    ]
    return Scored(total, total - np.array(without)[:, None])
