"""What a study is: its specification, the files it is written in, and its cells."""

from papa.spec.data import (
    CodeSpec,
    Columns,
    EmbeddedSource,
    EncoderSpec,
    FilesSource,
    Frozen,
    HeadScores,
    HubSource,
    Precision,
    Source,
)
from papa.spec.orders import Order
from papa.spec.study import (
    ConstantsKind,
    ConstantsSpec,
    ExecutionSpec,
    FeaturesSpec,
    LayoutSpec,
    RankingSpec,
    StudySpec,
    constants_kinds,
)
from papa.spec.task import Metric, NamedMetric, ProbeSpec, TaskKind, TaskSpec
