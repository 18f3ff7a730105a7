"""An encoder with constant heads that takes ordinary inputs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from papa.attention.replacement import Constants, EntryCounts, replaced
from papa.corpora.batches import MicroBatch, rows_of_like_length
from papa.encoders.encoder import Encoder
from papa.encoders.precision import check_int8
from papa.errors import SpecError
from papa.exporting.classifier import Classifier
from papa.exporting.dense import DenseEncoder
from papa.exporting.document import ExportDocument
from papa.exporting.placement import InputLayout, Mask, write_back
from papa.exporting.stored import without_constant_heads
from papa.spec.orders import Head


@dataclass
class ExportedOutput(ModelOutput):
    """What an exported encoder returns; see its ``forward``."""

    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    logits: Tensor | None = None


class ExportedEncoder(nn.Module):
    """An encoder some of whose heads are constant, called like a model of ``transformers``;
    frozen until ``requires_grad_(True)``:

        model = papa.load_exported("folder")
        texts = ["a text", "another"]
        inputs = model.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        states = model(**inputs).last_hidden_state

    Inside, tokens move into the slots that the constants were made for, or stay where they are if
    constants go by distance, and run without padding, in batches of inputs of like length; hidden
    states come back at the tokens' positions, 0 where there is none. Where the study's probe came
    along there are its ``logits`` as well, so that pipelines of ``transformers`` classify texts or
    tokens.

    It changes the encoder's attention for good. Constants are of all heads; only those of ``heads``
    are read.

    Attributes:
        unseen_share: of what the constant heads read of their matrices, over all inputs, the share
            of entries that the average had never seen.
    """

    def __init__(
        self,
        encoder: Encoder,
        constants: Constants,
        heads: Sequence[Head],
        layout: InputLayout,
        tokenizer: PreTrainedTokenizerBase | None = None,
        document: ExportDocument | None = None,
        classifier: Classifier | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__()
        self.model = encoder.model
        self.config = encoder.config
        self.heads = tuple(heads)
        self.layout = layout
        self.tokenizer = tokenizer
        self.document, self.folder = document, folder
        self.classifier = None if classifier is None else classifier.to(encoder.device)
        self._entries = EntryCounts()
        self.encoder, self._constants = encoder, constants
        self._put_back = self._replace()
        self.eval()

    @property
    def device(self) -> torch.device:
        """Where it runs; inputs may lie elsewhere."""
        return self.encoder.device

    @property
    def unseen_share(self) -> float:
        return self._entries.unseen_share

    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Mask | None = None,
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
        *,
        output_hidden_states: bool = False,
    ) -> ExportedOutput:
        """The hidden states of right-padded inputs, in the order of their tokens.

        Args:
            input_ids: token ids with the special tokens that the tokenizer adds.
            attention_mask: 1 where there is a token; None: everywhere.
            token_type_ids: segment ids; None: those that the encoder's tokenizer gives.
            output_hidden_states: whether to return all L+1 hidden states.

        Returns:
            ``last_hidden_state`` [batch, tokens, width] and, when asked for, ``hidden_states``;
            with a classifier ``logits``, [batch, labels], or [batch, tokens, labels] of tokens.

        Raises:
            DataError: an input does not fit the layout; the message names the input and says why.
        """
        on_cpu = [
            None if tensor is None else tensor.cpu()
            for tensor in (input_ids, attention_mask, token_type_ids)
        ]
        assert on_cpu[0] is not None
        tokens = self.layout.place(on_cpu[0], on_cpu[1], on_cpu[2])
        budget = self.encoder.tokens_per_batch(None)
        if self.device.type == "cpu":
            budget *= torch.get_num_threads()
        padded, logits = list[Tensor](), None
        for rows in rows_of_like_length(tokens.first_lengths, tokens.lengths, budget):
            batch = self.layout.batch(rows, tokens.take(rows)).to(self.device)
            every = self.encoder.token_states(batch)
            if self.classifier is not None:
                logits = self._classified(self.classifier, every, batch, input_ids.shape, logits)
            layers = every[0 if output_hidden_states else -1 :]
            if not padded:
                shape = (*input_ids.shape, layers[-1].shape[-1])
                padded = [states.new_zeros(shape) for states in layers]
            for states, into in zip(layers, padded, strict=True):
                write_back(states, batch, into)
        return ExportedOutput(
            last_hidden_state=padded[-1],
            hidden_states=tuple(padded) if output_hidden_states else None,
            logits=logits,
        )

    @staticmethod
    def _classified(
        classifier: Classifier,
        layers: Sequence[Tensor],
        batch: MicroBatch,
        shape: Sequence[int],
        logits: Tensor | None,
    ) -> Tensor:
        """The logits of all inputs, those of the batch written to their places."""
        found = classifier(layers, batch)
        if logits is None:
            places = shape if classifier.of_tokens else shape[:1]
            logits = found.new_zeros(*places, classifier.labels)
        if classifier.of_tokens:
            write_back(found, batch, logits)
        else:
            logits[batch.rows] = found
        return logits

    def weights(self) -> dict[str, Tensor]:
        """The encoder's weights as they are now, without rows that constant heads alone need."""
        self._put_back()
        try:
            return without_constant_heads(self.model, self.heads, self._constants.kind)
        finally:
            self._put_back = self._replace()

    @contextmanager
    def dense(self) -> Iterator[DenseEncoder]:
        """Inside the block its computation is in fixed steps on padded tensors, and cannot be done
        in any other way.
        """
        self._put_back()
        try:
            dense = DenseEncoder(self.encoder, self._constants, self.heads, self.layout)
            with dense.replaced():
                yield dense
        finally:
            self._put_back = self._replace()

    def train(self, mode: bool = True) -> ExportedEncoder:
        """Stays in eval mode: nothing is dropped, in training of its weights either."""
        return super().train(False)

    def _replace(self) -> weakref.finalize:
        """Make the heads constant; what is returned puts them back, at the latest when this module
        goes.
        """
        replacement = ExitStack()
        self._entries = replacement.enter_context(
            replaced(self.encoder, self._constants, self.heads)
        )
        return weakref.finalize(self, replacement.close)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ExportedEncoder:
        """Moves and conversions (``to``, ``cuda``, ``half``) reach the constants and the sliced
        maps too.

        Raises:
            SpecError: it is int8, which stays on a CPU in float32.
        """
        if self.encoder.int8:
            like = fn(torch.zeros(1))
            check_int8(like.device)
            if like.dtype != torch.float32:
                raise SpecError(
                    f"an encoder in int8 takes and gives float32, not {like.dtype}: load it "
                    "without int8"
                )
        self._put_back()
        super()._apply(fn, recurse)
        self.encoder.device = next(self.model.parameters()).device
        self._put_back = self._replace()
        return self
