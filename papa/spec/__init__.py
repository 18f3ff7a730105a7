"""What a study is: its specification, the files it is written in, and its cells."""

from papa.spec.constants import ConstantsSpec
from papa.spec.data import Columns, EmbeddedSource, FilesSource, HubSource, Source
from papa.spec.study import (
    CodeSpec,
    EncoderSpec,
    ExecutionSpec,
    FeaturesSpec,
    HeadScores,
    LayoutSpec,
    RankingSpec,
    StudySpec,
)
from papa.spec.task import Metric, NamedMetric, ProbeSpec, TaskKind, TaskSpec
from papa.spec.values import (
    ConstantsKind,
    Fraction,
    Frozen,
    Name,
    Order,
    Positive,
    Precision,
    PrecisionChoice,
    constants_kinds,
    listed,
)

__all__ = [
    "CodeSpec",
    "Columns",
    "ConstantsKind",
    "ConstantsSpec",
    "EmbeddedSource",
    "EncoderSpec",
    "ExecutionSpec",
    "FeaturesSpec",
    "FilesSource",
    "Fraction",
    "Frozen",
    "HeadScores",
    "HubSource",
    "LayoutSpec",
    "Metric",
    "Name",
    "NamedMetric",
    "Order",
    "Positive",
    "Precision",
    "PrecisionChoice",
    "ProbeSpec",
    "RankingSpec",
    "Source",
    "StudySpec",
    "TaskKind",
    "TaskSpec",
    "constants_kinds",
    "listed",
]
