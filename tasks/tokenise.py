"""Tokenise: a task's text laid out in S slots, as Arrow shards (paper, Appendix A)."""

from papa.models.reference import EncoderReference, load_tokenizer
from papa.spec import LayoutSpec, TaskSpec
from papa.tasks.context import Context
from papa.tasks.step import stage
from papa.text.corpus import TOKENISE_VERSION, tokenise_corpus


@stage("tokenise", version=TOKENISE_VERSION, runs_on="driver's machine")
def tokenise(
    context: Context,
    tokenizer: EncoderReference,
    task: TaskSpec,
    layout: LayoutSpec,
    fingerprint: str,
) -> None:
    """Tokenise both splits of a task; [CLS] is in the first slot, [SEP] in the last.

    In: the source's rows, whose ``fingerprint`` is checked. Out: token ids, labels and lengths in
    shards of ``shard_rows`` rows. Where: on the driver's machine, where the source's files lie.
    """
    tokenise_corpus(
        task,
        layout,
        load_tokenizer(tokenizer),
        context.step.folder(context.store),
        shard_rows=context.execution.shard_rows,
        progress=context.progress,
        content=fingerprint,
        provenance=context.build_metadata(),
    )
