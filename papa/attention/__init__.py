"""What attention is replaced by, in encoders of studies and in models that the user holds."""

from __future__ import annotations

from typing import NamedTuple


class Tested(NamedTuple):
    """A family on which ``papa.ablated`` is tested, and what is special of it; others may work."""

    name: str
    model_types: tuple[str, ...]
    note: str


TESTED = (
    Tested(
        "BERT, RoBERTa, ELECTRA", ("bert", "roberta", "electra"), "positions in the padded input"
    ),
    Tested("DistilBERT, ALBERT", ("distilbert", "albert"), "positions in the padded input"),
    Tested("ModernBERT", ("modernbert",), "local layers keep their window"),
    Tested("ViT, DeiT, DINOv2", ("vit", "deit", "dinov2"), "patches have positions, row by row"),
    Tested("CLIP vision", ("clip_vision_model",), "give the vision model alone"),
    Tested("Whisper's encoder", ("whisper",), "give model.get_encoder()"),
    Tested("wav2vec2", ("wav2vec2",), ""),
    Tested("GPT-2", ("gpt2",), ""),
    Tested(
        "Llama, Mistral",
        ("llama", "mistral"),
        "heads count by query; Mistral's layers keep their window",
    ),
    Tested("Qwen2, Qwen3", ("qwen2", "qwen3"), "heads count by query"),
    Tested(
        "Gemma 2, Gemma 3",
        ("gemma2", "gemma3_text"),
        "sliding layers keep their window; scores stay capped",
    ),
)
