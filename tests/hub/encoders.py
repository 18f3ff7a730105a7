"""Encoder repositories with the files, formats and weight names of the public ones
(``https://huggingface.co/<name>/tree/main``); weights and vocabularies are tiny.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from safetensors.torch import save_file
from torch import Tensor

from tests.hub.formats import (
    WORDPIECES,
    as_they_are,
    deberta_bytes,
    modernbert_words,
    old_layer_norms,
    pieces,
    roberta_bytes,
    v1_extras,
    v3_halves,
    wordpieces,
)
from tests.make import RANGE

SIZES: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": RANGE,
}
POSITIONS = 256
"""As many as the paper's longest task has slots."""
COUNTED = POSITIONS + 2
"""Of models that count from the padding's position on."""
COUNTING: dict[str, Any] = {
    "max_position_embeddings": COUNTED,
    "type_vocab_size": 1,
    "pad_token_id": 1,
}
FAIRSEQ = {"bos_token_id": 0, "eos_token_id": 2}
DEBERTA: dict[str, Any] = {
    "relative_attention": True,
    "position_biased_input": False,
    "max_relative_positions": -1,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 0,
    "legacy": False,
}
MODERNBERT = {"pad_token_id": 0} | {
    f"{name}_token_id": number for name, number in (("cls", 3), ("bos", 3), ("sep", 4), ("eos", 4))
}
PUBLISHED_V3 = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3} | {
    "pad_piece": "[PAD]",
    "bos_piece": "[CLS]",
    "eos_piece": "[SEP]",
    "unk_piece": "[UNK]",
}
OTHERS = ("README.md", ".gitattributes", "flax_model.msgpack", "tf_model.h5", "rust_model.ot")


@dataclass(frozen=True)
class Published:
    """One repository.

    Attributes:
        model: makes the model with the heads it was published with.
        tokenizer: writes its tokenizer's files.
        settings: its ``tokenizer_config.json``.
        formats: of its weights: "safetensors", "bin", or both.
        weights: from the model's weights to what its weight files hold.
        more: files that PAPA has no use for.
        needed: the tokenizer's and configuration files that it should fetch.
    """

    model: Callable[[], tf.PreTrainedModel]
    tokenizer: Callable[[Path], None]
    settings: dict[str, Any]
    formats: tuple[str, ...]
    weights: Callable[[dict[str, Tensor]], dict[str, Any]] = as_they_are
    more: tuple[str, ...] = OTHERS
    needed: frozenset[str] = field(default=frozenset())

    @property
    def fetched(self) -> set[str]:
        """All that should be fetched."""
        weights = "model.safetensors" if "safetensors" in self.formats else "pytorch_model.bin"
        return {"config.json", "tokenizer_config.json", weights, *self.needed}


def made(family: str, head: str, **settings: Any) -> Callable[[], tf.PreTrainedModel]:
    """The model of a family, with the head it was published with."""
    model, config = getattr(tf, f"{family}For{head}"), getattr(tf, f"{family}Config")
    return lambda: model(config(**{**SIZES, **settings}))


PUBLISHED: dict[str, Published] = {
    "google-bert/bert-base-uncased": Published(
        made("Bert", "PreTraining", max_position_embeddings=POSITIONS),
        wordpieces,
        {"do_lower_case": True, "model_max_length": 512},
        ("safetensors", "bin"),
        old_layer_norms,
        (*OTHERS, "model.onnx", "coreml/float32_model.mlpackage/Manifest.json"),
        frozenset({"vocab.txt", "tokenizer.json"}),
    ),
    "FacebookAI/roberta-base": Published(
        made("Roberta", "MaskedLM", **COUNTING, **FAIRSEQ),
        roberta_bytes,
        {"model_max_length": 512},
        ("safetensors", "bin"),
        needed=frozenset({"vocab.json", "merges.txt", "tokenizer.json"}),
    ),
    "microsoft/deberta-base": Published(
        made("Deberta", "MaskedLM", **DEBERTA, pos_att_type="c2p|p2c"),
        deberta_bytes,
        {"do_lower_case": False, "vocab_type": "gpt2"},
        ("bin",),
        v1_extras,
        (*OTHERS, "bpe_encoder.bin"),
        frozenset({"vocab.json", "merges.txt"}),
    ),
    "microsoft/deberta-v3-base": Published(
        made(
            "DebertaV2",
            "MaskedLM",
            **DEBERTA,
            pos_att_type="p2c|c2p",
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            position_buckets=8,
        ),
        pieces("spm.model", json_too=False, **PUBLISHED_V3),
        {"do_lower_case": False, "vocab_type": "spm"},
        ("bin",),
        v3_halves,
        (*OTHERS, "pytorch_model.generator.bin"),
        frozenset({"spm.model"}),
    ),
    "google/electra-base-discriminator": Published(
        made("Electra", "PreTraining", embedding_size=32, max_position_embeddings=POSITIONS),
        wordpieces,
        {"do_lower_case": True, "model_max_length": 512},
        ("bin",),
        needed=frozenset({"vocab.txt", "tokenizer.json"}),
    ),
    "FacebookAI/xlm-roberta-base": Published(
        made("XLMRoberta", "MaskedLM", **COUNTING, **FAIRSEQ),
        pieces("sentencepiece.bpe.model"),
        {"model_max_length": 512},
        ("safetensors", "bin"),
        needed=frozenset({"sentencepiece.bpe.model", "tokenizer.json"}),
    ),
    "answerdotai/ModernBERT-base": Published(
        made(
            "ModernBert",
            "MaskedLM",
            **MODERNBERT,
            local_attention=8,
            max_position_embeddings=POSITIONS,
        ),
        modernbert_words,
        {
            "model_input_names": ["input_ids", "attention_mask"],
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{f"{name[1:-1].lower()}_token": name for name in WORDPIECES if name != "[unused0]"},
        },
        ("safetensors", "bin"),
        needed=frozenset({"tokenizer.json"}),
    ),
}


def write_encoder(name: str, folder: Path, seed: int = 0) -> tf.PreTrainedModel:
    """Write a repository's files; returns the model whose weights it holds."""
    published = PUBLISHED[name]
    torch.manual_seed(seed)
    model = published.model().eval()
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("bias") and parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=RANGE)
    folder.mkdir(parents=True)
    model.config.to_json_file(folder / "config.json")
    (folder / "tokenizer_config.json").write_text(json.dumps(published.settings))
    published.tokenizer(folder)
    weights = published.weights(model.state_dict())
    if "safetensors" in published.formats:
        # A decoder that is the embeddings is stored once, as the embeddings.
        names = sorted(weights, key=lambda name: "embeddings" in name)
        once = {weights[name].data_ptr(): name for name in names}
        save_file(
            {name: weights[name] for name in once.values()},
            folder / "model.safetensors",
            {"format": "pt"},
        )
    if "bin" in published.formats:
        torch.save(weights, folder / "pytorch_model.bin")
    for other in published.more:
        (folder / other).parent.mkdir(parents=True, exist_ok=True)
        (folder / other).write_bytes(b"nothing that PAPA reads")
    return model
