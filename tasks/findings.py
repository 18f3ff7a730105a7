"""What the report of a finished study shows."""

from contextlib import suppress
from hashlib import sha256
from typing import cast

from papa.errors import DamagedError
from papa.heads.constants import ConstantMatrices
from papa.ranking.head_scores import LambdaAgreement
from papa.reporting.cite import bibtex
from papa.reporting.heads import AttentionAverage
from papa.reporting.reference import read_reference
from papa.reporting.report import Findings
from papa.tasks.manifest import MANIFEST, PAPER, FinishedStudy


def findings_of(finished: FinishedStudy) -> Findings:
    """Collect what a study's report shows; without matrices that the store no longer holds."""
    folder = finished.folder
    manifest = finished.manifest
    averages = []
    for entry in manifest.averages:
        with suppress(DamagedError):
            average = ConstantMatrices.load(finished.artifact(entry.artifact))
            observed = average.seen if average.counts is None else average.counts
            averages.append(
                AttentionAverage(
                    entry.encoder, entry.task, average.matrices, observed, entry.special
                )
            )
    digest = sha256((folder / MANIFEST).read_bytes()).hexdigest()
    paper = folder / PAPER
    return Findings(
        finished.study,
        finished.results,
        finished.summary,
        finished.heads,
        orders=finished.orders,
        joint_effects=finished.joint_effects,
        averages=averages,
        agreement=cast(tuple[LambdaAgreement, ...], manifest.agreement),
        texts=manifest.texts,
        paper=read_reference(paper) if paper.exists() else None,
        provenance=manifest.provenance,
        citation=bibtex(manifest.study, digest),
    )
