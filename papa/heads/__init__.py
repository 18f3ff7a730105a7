"""What attention is replaced by, in encoders of studies and in models that the user holds."""

from __future__ import annotations

from typing import NamedTuple


class Tested(NamedTuple):
    """A family on which ``papa.ablated`` is tested, and what is special of it; others may work."""

    name: str
    model_types: tuple[str, ...]
    note: str


_PADDED, _QUERY = "positions in the padded input", "heads count by query"
TESTED = (
    Tested("BERT, RoBERTa, ELECTRA", ("bert", "roberta", "electra"), _PADDED),
    Tested("DistilBERT, ALBERT", ("distilbert", "albert"), _PADDED),
    Tested("MPNet, DeBERTa", ("mpnet", "deberta", "deberta-v2"), _PADDED),
    Tested("ModernBERT", ("modernbert",), "local layers keep their window"),
    Tested("ViT, DeiT, DINOv2", ("vit", "deit", "dinov2"), "patches have positions, row by row"),
    Tested("CLIP vision", ("clip_vision_model",), "give the vision model alone"),
    Tested("Whisper's encoder", ("whisper",), "give model.get_encoder()"),
    Tested("wav2vec2, GPT-2", ("wav2vec2", "gpt2"), ""),
    Tested("Llama, Qwen2, Qwen3", ("llama", "qwen2", "qwen3"), _QUERY),
    Tested("Mistral", ("mistral",), f"{_QUERY}; layers keep their window"),
    Tested(
        "Gemma 2, Gemma 3",
        ("gemma2", "gemma3_text"),
        "sliding layers keep their window; scores stay capped",
    ),
)
