"""An exported encoder as the first module of a model of sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from papa.exporting.loading import load_exported


class SentenceModule(nn.Module):
    """What sentence-transformers calls to tokenise texts and to embed their tokens; pooling comes
    after it::

        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        module = papa.SentenceModule("my-encoder")
        pooling = Pooling(module.get_embedding_dimension(), "mean")
        model = SentenceTransformer(modules=[module, pooling])
        vectors = model.encode(["a text", "another"])

    That library loads a class of ours from a folder only with ``trust_remote_code``, so the model
    is put together in code and not saved.

    Args:
        folder: what ``papa export`` wrote, from a task on single texts.
        device: where it shall run; sentence-transformers moves it.
        int8: as of ``papa.load_exported``.

    Raises:
        ArtifactError: as ``papa.load_exported``.
    """

    def __init__(
        self, folder: str | Path, device: str | torch.device = "cpu", *, int8: bool = False
    ) -> None:
        super().__init__()
        self.model = load_exported(folder, device, int8=int8)

    @property
    def tokenizer(self) -> Any:
        """The encoder's tokenizer."""
        return self.model.tokenizer

    @property
    def max_seq_length(self) -> int:
        """The most tokens of a text, special ones included; the rest is cut."""
        return self.model.layout.longest_input

    def get_embedding_dimension(self) -> int:
        """d, the width of a token's embedding."""
        return self.model.config.hidden_size

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, **_: object
    ) -> dict[str, Tensor]:
        """Texts as padded token ids.

        Args:
            inputs: texts.
            prompt: put before each.
        """
        texts = [(prompt or "") + text for text in inputs]
        return dict(self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt"))

    def forward(self, features: dict[str, Tensor], **_: object) -> dict[str, Tensor]:
        """Add ``token_embeddings``, float [batch, tokens, width], to what ``preprocess`` gave."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        inputs = {name: features[name] for name in names if name in features}
        return {**features, "token_embeddings": self.model(**inputs).last_hidden_state}
