"""What a study is: its specification, the files it is written in, and its cells."""

from papa.spec.orders import Order
from papa.spec.study import (
    CodeSpec,
    EncoderSpec,
    ExecutionSpec,
    ExternalScores,
    FeaturesSpec,
    LayoutSpec,
    RankingSpec,
    StudySpec,
    SubstituteKind,
    SubstituteSpec,
)
from papa.spec.task import (
    Columns,
    EmbeddedSource,
    FilesSource,
    HubSource,
    Metric,
    NamedMetric,
    Precision,
    ProbeSpec,
    Source,
    TaskKind,
    TaskSpec,
)
