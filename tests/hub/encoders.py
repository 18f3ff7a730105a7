"""Encoder repositories as published on the hub, with tiny weights and vocabularies."""

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import sentencepiece
import torch
import transformers as tf
from safetensors.torch import save_file
from tokenizers import ByteLevelBPETokenizer
from torch import Tensor

from tests.make import RANGE, WORDS, Make, Settings, model_factory

SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "a film that is warm and funny and never dull",
    "nobody expected the second half to be so slow",
    "she reads one book a week and forgets most of them",
    "two dogs and one cat sleep in the same chair",
    "Paris is larger than Lyon, but smaller than London",
    "one, two, three: the play begins at eight",
]
SIZES = WORDS | {"vocab_size": 400, "num_hidden_layers": 2, "intermediate_size": 48}
SLOTS: Settings = {"max_position_embeddings": 256}
"""As many as the paper's longest task has slots."""
FAIRSEQ: Settings = {
    "max_position_embeddings": 258,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
"""Of models that count from the padding's position on."""
DEBERTA: Settings = SLOTS | {
    "relative_attention": True,
    "position_biased_input": False,
    "max_relative_positions": -1,
    "type_vocab_size": 0,
    "legacy": False,
}
V3: Settings = {
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 8,
    "pos_att_type": "p2c|c2p",
}
MODERNBERT: Settings = {
    "pad_token_id": 0,
    "local_attention": 8,
    "cls_token_id": 3,
    "bos_token_id": 3,
    "sep_token_id": 4,
    "eos_token_id": 4,
}
WORDPIECES = ("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""BERT's order; 0 pads."""
V3_PIECES = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3} | {
    f"{name}_piece": f"[{piece}]"
    for name, piece in (("pad", "PAD"), ("bos", "CLS"), ("eos", "SEP"), ("unk", "UNK"))
}
OTHERS = {
    "README.md",
    ".gitattributes",
    "flax_model.msgpack",
    "tf_model.h5",
    "rust_model.ot",
    "model.onnx",
    "coreml/float32_model.mlpackage/Manifest.json",
    "bpe_encoder.bin",
    "pytorch_model.generator.bin",
}
"""Files that PAPA has no use for."""


def wordpieces(folder: Path, json_alone: bool = False) -> None:
    words = (word.strip(",:") for sentence in SENTENCES for word in sentence.lower().split())
    letters = "abcdefghijklmnopqrstuvwxyz,:"
    pieces = [*WORDPIECES, *letters, *(f"##{letter}" for letter in letters), *words]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n")
    tokenizer_json(folder, tf.BertTokenizer if json_alone else tf.AutoTokenizer)
    if json_alone:
        (folder / "vocab.txt").unlink()


def bytes_of(folder: Path, *special_tokens: str, json_too: bool = True) -> None:
    tokenizer = ByteLevelBPETokenizer()
    special = list(special_tokens)
    tokenizer.train_from_iterator(SENTENCES, 330, special_tokens=special, show_progress=False)
    tokenizer.save_model(str(folder))
    if json_too:
        tokenizer_json(folder)


def pieces(folder: Path, name: str, json_too: bool = True, **special_tokens: str | int) -> None:
    """A SentencePiece model; ``special_tokens`` are the trainer's names for its first pieces."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3),
        model_writer=model,
        vocab_size=90,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
        **special_tokens,
    )
    (folder / name).write_bytes(model.getvalue())
    if json_too:
        tokenizer_json(folder)


def tokenizer_json(folder: Path, kind: type = tf.AutoTokenizer) -> None:
    """``tokenizer.json``, from the other files in the folder, read by a class of tokenizers."""
    tokenizer = kind.from_pretrained(folder, local_files_only=True)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))


def old_layer_norms(state: dict[str, Tensor]) -> dict[str, object]:
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, name in old.items():
        state = {key.replace(new, name): value for key, value in state.items()}
    return state


def v1_extras(state: dict[str, Tensor]) -> dict[str, object]:
    """Positions that the encoder does not use, and settings beside the weights."""
    positions = {"deberta.embeddings.position_embeddings.weight": torch.zeros(256, 32)}
    return {**state, **positions, "config": {"hidden_size": 32, "pos_att_type": "c2p|p2c"}}


def v3_halves(state: dict[str, Tensor]) -> dict[str, object]:
    state = {**v1_extras(state), "mask_predictions.dense.weight": torch.zeros(32, 32)}
    del state["config"]
    return {name: value.half() for name, value in state.items()}


class Published(NamedTuple):
    """One repository: the model with the head it was published with, what writes its tokenizer's
    files, its ``tokenizer_config.json``, whether it has safetensors too, and from the model's
    weights to what its weight files hold.
    """

    model: Make
    tokenizer: Callable[[Path], None]
    settings: dict[str, object]
    safetensors: bool = True
    weights: Callable[[dict[str, Tensor]], dict[str, object]] = dict


def model_for(family: str, head: str, settings: Settings) -> Make:
    return model_factory(family, SIZES | settings, f"For{head}")


LOWER: dict[str, object] = {"do_lower_case": True, "model_max_length": 512}
LONG: dict[str, object] = {"model_max_length": 512}
PUBLISHED: dict[str, Published] = {
    "google-bert/bert-base-uncased": Published(
        model_for("Bert", "PreTraining", SLOTS), wordpieces, LOWER, weights=old_layer_norms
    ),
    "FacebookAI/roberta-base": Published(
        model_for("Roberta", "MaskedLM", FAIRSEQ),
        lambda folder: bytes_of(folder, "<s>", "<pad>", "</s>", "<unk>", "<mask>"),
        LONG,
    ),
    "microsoft/deberta-base": Published(
        model_for("Deberta", "MaskedLM", DEBERTA | {"pos_att_type": "c2p|p2c"}),
        lambda folder: bytes_of(
            folder, "[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", json_too=False
        ),
        {"do_lower_case": False, "vocab_type": "gpt2"},
        False,
        v1_extras,
    ),
    "microsoft/deberta-v3-base": Published(
        model_for("DebertaV2", "MaskedLM", DEBERTA | V3),
        partial(pieces, name="spm.model", json_too=False, **V3_PIECES),
        {"do_lower_case": False, "vocab_type": "spm"},
        False,
        v3_halves,
    ),
    "google/electra-base-discriminator": Published(
        model_for("Electra", "PreTraining", SLOTS | {"embedding_size": 32}),
        wordpieces,
        LOWER,
        False,
    ),
    "FacebookAI/xlm-roberta-base": Published(
        model_for("XLMRoberta", "MaskedLM", FAIRSEQ),
        partial(pieces, name="sentencepiece.bpe.model"),
        LONG,
    ),
    "answerdotai/ModernBERT-base": Published(
        model_for("ModernBert", "MaskedLM", MODERNBERT | SLOTS),
        partial(wordpieces, json_alone=True),
        {
            "model_input_names": ["input_ids", "attention_mask"],
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{f"{name[1:-1].lower()}_token": name for name in WORDPIECES if name != "[unused0]"},
        },
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
    torch.save(weights, folder / "pytorch_model.bin")
    if published.safetensors:
        # A decoder that is the embeddings is stored once, as the embeddings.
        names = sorted(weights, key=lambda name: "embeddings" in name)
        once = {weights[name].data_ptr(): name for name in names}
        file = folder / "model.safetensors"
        save_file({name: weights[name] for name in once.values()}, file, {"format": "pt"})
    for unused_file in OTHERS:
        (folder / unused_file).parent.mkdir(parents=True, exist_ok=True)
        (folder / unused_file).write_bytes(b"nothing that PAPA reads")
    return model
