"""An exported encoder as the first module of a model of sentence-transformers, saved and loaded
with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, TypeAdapter
from torch import Tensor, nn

from papa.errors import ArtifactError
from papa.exporting.loading import load_exported
from papa.exporting.writing import save_exported
from papa.storage.metadata import is_plain

_MODULES, _SETTINGS = "modules.json", "config_sentence_transformers.json"
_KEPT = ("prompts", "default_prompt_name", "similarity_fn_name")


class _Part(BaseModel):
    """A module of a saved model."""

    type: str
    path: str


_PARTS, _SETTINGS_READ = TypeAdapter(list[_Part]), TypeAdapter(dict[str, Any])


class SentenceModule(nn.Module):
    """What sentence-transformers calls to tokenise texts and to embed their tokens; pooling comes
    after it::

        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        module = papa.SentenceModule("my-encoder")
        pooling = Pooling(module.get_embedding_dimension(), "mean")
        model = SentenceTransformer(modules=[module, pooling])
        vectors = model.encode(["a text", "another"])

    ``model.save_pretrained("folder")`` keeps all of it. That library loads a class of ours only
    with ``trust_remote_code``: ``papa.load_sentence_transformer`` does without.

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

    @classmethod
    def load(
        cls, model_name_or_path: str | Path, subfolder: str = "", **_: object
    ) -> SentenceModule:
        """What ``save`` wrote, as modules of sentence-transformers are loaded."""
        return cls(Path(model_name_or_path) / subfolder)

    def save(self, output_path: str | Path, *_: object, **__: object) -> None:
        """Write the export as it is now (``papa.save_exported``), as modules of
        sentence-transformers are saved.
        """
        save_exported(self.model, output_path)

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


def load_sentence_transformer(
    folder: str | Path, device: str | torch.device = "cpu", *, int8: bool = False
) -> Any:
    """A ``SentenceTransformer`` from a folder that one with a ``SentenceModule`` was saved to; or
    from an export itself, mean-pooled. No code of the folder is run.

    Args:
        folder: of ``save_pretrained``, or of ``papa export`` from a task on single texts.
        device: as of ``load_exported``.
        int8: likewise.

    Raises:
        ArtifactError: the folder is neither, or names a module that is of neither library.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    folder = Path(folder)
    if not (folder / _MODULES).is_file():
        module = SentenceModule(folder, device, int8=int8)
        pooling = Pooling(module.get_embedding_dimension(), "mean")
        return SentenceTransformer(modules=[module, pooling], device=str(device))
    # Their other classes import what a folder names, or read weights that can hold code.
    kinds = SentenceModule, Pooling, Normalize
    known = {f"{kind.__module__}.{kind.__name__}": kind for kind in kinds}
    damaged = f"{folder} is damaged (%s): save the model again"
    try:
        parts = _PARTS.validate_json((folder / _MODULES).read_bytes())
        settings = _SETTINGS_READ.validate_json((folder / _SETTINGS).read_bytes())
        if not parts or not all(part.path == "" or is_plain(part.path) for part in parts):
            raise ValueError
    except (OSError, ValueError):
        raise ArtifactError(damaged % f"{_MODULES} or {_SETTINGS}") from None
    for part in parts:
        if part.type not in known:
            raise ArtifactError(
                f"{folder / _MODULES} names {part.type!r}, and folders hold papa.SentenceModule, "
                "Pooling and Normalize alone: put the model together in code"
            )
    modules = list[nn.Module]()
    for part in parts:
        kind = known[part.type]
        if kind is SentenceModule:
            modules.append(SentenceModule(folder / part.path, device, int8=int8))
            continue
        try:
            modules.append(kind.load(str(folder), subfolder=part.path, local_files_only=True))
        except (OSError, ValueError, TypeError, AttributeError):
            raise ArtifactError(damaged % part.path) from None
    kept = {name: settings[name] for name in _KEPT if name in settings}
    try:
        return SentenceTransformer(modules=modules, device=str(device), **kept)
    except (ValueError, TypeError, AttributeError):
        raise ArtifactError(damaged % _SETTINGS) from None
