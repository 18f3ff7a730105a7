"""Code of the user's own in a measurement: a metric, a probe, a score of what a model puts out;
in a study it has a name.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from papa.errors import DataError, SpecError, in_one_line, meant
from papa.scores.metrics import Scored, positive_class, scored
from papa.spec import TaskSpec

Score = Callable[[np.ndarray, np.ndarray, np.ndarray], Scored]
"""Of predictions [n], labels [n], and labels of each row [rows]."""
OwnMetric = Callable[[np.ndarray, np.ndarray], float]
"""From the true and the predicted classes [n], as scikit-learn's metrics have them, to a number."""
OwnScore = Callable[[Any, Mapping[str, Any]], Any]
"""From what a model put out and what it was called with to a number for each text [texts], the
larger the better.
"""


def own_name(code: Any) -> str:
    """What results call a metric or a score of the user's own: by its name, and whether it is
    scikit-learn's, whose ranges are known.
    """
    name = getattr(code, "__name__", "")
    home = "sklearn" if str(getattr(code, "__module__", "")).startswith("sklearn.") else "own"
    return f"{home}:{name}" if name.isidentifier() else "own"


@dataclass(frozen=True)
class Named:
    """Code that a study names. The text of its file goes to the workers with the step that needs
    it, and is run where it is called first, as no module that anything else could import. It is
    None where the command line did not give the file; the code can be known then, not run.
    """

    name: str
    digest: str
    text: str | None

    def load(self) -> Any:
        """What the file defines under the name."""
        module, _, name = self.name.partition(":")
        if self.text is None:
            raise SpecError(not_given(self.name))
        if name not in (found := vars(_ran(module, self.text))):
            near = meant(name, found)
            raise SpecError(
                f"{self.name}: {module}.py defines no {name}{near}: correct one of them"
            )
        return found[name]

    def __call__(self, *given: Any) -> Any:
        return self.load()(*given)


@lru_cache(maxsize=16)
def _ran(module: str, text: str) -> ModuleType:
    """A file's text, run once in a process."""
    found = ModuleType(module)
    try:
        exec(compile(text, f"{module}.py", "exec", dont_inherit=True), vars(found))
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {in_one_line(Exception(error))}"
        raise SpecError(
            f"--code {module}.py fails ({why}): correct it; it may import what is installed, "
            "and no file beside it"
        ) from error
    return found


def loaded(code: Any) -> Any:
    """Code of the user's own as it is, also where a study names it."""
    return code.load() if isinstance(code, Named) else code


def not_given(name: str) -> str:
    """That a study names code whose file nobody gave, and what to do."""
    return (
        f"the study names {name}, code of your own, which is run only from a file that the command "
        f"line gives: add --code {name.partition(':')[0]}.py to papa run, check or plan"
    )


@dataclass(frozen=True)
class OwnCode:
    """What a measurement runs of the user's own, as it is or ``Named``."""

    metric: OwnMetric | None = None
    probe: Any = None
    score: OwnScore | None = None

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 over the modules that the code is in, and its settings; None where one is not
        known: of a notebook, a function inside another, or settings such as arrays.
        """
        found = _source([self.metric, self.probe, self.score])
        return found and hashlib.sha256(found.encode()).hexdigest()


def _source(code: Any) -> str | None:
    """The name, the settings and the digest of the module of a function, class or estimator, and of
    those that it is made from; None where something is not known.
    """
    if code is None or isinstance(code, bool | int | float | str):
        return repr(code)
    if isinstance(code, Named):
        return f"{code.name}:{code.digest}"
    if isinstance(code, list | tuple):
        parts = [_source(part) for part in code]
        return None if None in parts else f"{type(code).__name__}{parts}"
    own, settings = code, _source("")
    if not hasattr(code, "__qualname__"):
        if not hasattr(code, "get_params"):
            return None
        own, settings = type(code), _source(sorted(code.get_params().items()))
    module, name = sys.modules[own.__module__], own.__qualname__
    file = getattr(module, "__file__", None)
    if settings is None or file is None or vars(module).get(name) is not own:
        return None
    version = getattr(sys.modules[module.__name__.partition(".")[0]], "__version__", "")
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return f"{module.__name__}:{name}:{settings}:{version}:{digest}"


def scorer(task: TaskSpec, names: Sequence[str] | None, code: OwnCode | None) -> Score:
    """How predictions on a task are scored."""
    if code and code.metric:
        return partial(own_metric_scored, code.metric)
    positive = positive_class(task, names)
    return lambda predictions, labels, lengths: scored(
        task.metric, predictions, labels, names, lengths, positive
    )


def own_metric_scored(
    metric: OwnMetric,
    predictions: Shaped[np.ndarray, " n"],
    labels: Shaped[np.ndarray, " n"],
    lengths: Int[np.ndarray, " rows"] | None = None,
) -> Scored:
    """The score of predictions, and what it loses without each example: the metric is called once
    with all of them, and once without each.
    """
    name = getattr(metric, "name", None) or getattr(metric, "__name__", type(metric).__name__)

    def value(kept: slice | np.ndarray) -> float:
        try:
            found = float(metric(labels[kept], predictions[kept]))
        except Exception as error:
            raise SpecError(
                f"metric: {name} failed on {len(labels[kept])} labels ({error}): it is called with "
                "the true and the predicted classes and gives a number"
            ) from error
        if not math.isfinite(found):
            of = f"{found} on {len(labels[kept])} labels"
            raise SpecError(f"metric: {name} gave {of}, expected a finite number")
        return found

    lengths = np.ones(len(labels), np.int64) if lengths is None else lengths
    example, whole = np.repeat(np.arange(len(lengths)), lengths), value(slice(None))
    without = [value(example != row) if count else whole for row, count in enumerate(lengths)]
    return Scored(whole, whole - np.array(without)[:, None])


def checked_score(found: Any) -> Any:
    """What a score of the user's own gave of a batch: a tensor [texts]."""
    import torch

    found = torch.as_tensor(found)
    wrong = "" if found.dim() == 1 and len(found) else f"shape {tuple(found.shape)}"
    if wrong or not found.isfinite().all():
        raise DataError(
            f"score gave {wrong or 'NaN or infinity'}, expected a finite number for each text of "
            "the batch: a tensor [texts]"
        )
    return found
