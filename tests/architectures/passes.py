"""Passes of models of any type: inputs that they take, and the stock model's own attention."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.masking_utils import eager_mask

from tests.architectures.configurations import TOKENS, WIDTH

LENGTH = 9
Inputs = dict[str, Tensor]


class NotTestedError(Exception):
    """A model could not be built or called, or a law does not apply; the reason is its message."""


@dataclass
class StockAttention:
    """The model's own eager attention, which records and can zero one head.

    Attributes:
        matrices, outputs: of every call of every module, in order.
        sinks: the modules that have learned sinks.
        zeroed: the module whose head outputs zeros, and that head.
    """

    matrices: dict[nn.Module, list[Tensor]] = field(default_factory=dict)
    outputs: dict[nn.Module, list[Tensor]] = field(default_factory=dict)
    sinks: set[nn.Module] = field(default_factory=set)
    zeroed: tuple[nn.Module, int] | None = None

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: object,
    ) -> tuple[Tensor, Tensor | None]:
        eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if eager is None:
            raise NotTestedError(f"{type(module).__name__} has no eager attention to compare with")
        output, matrices = eager(module, query, key, value, attention_mask, **options)
        if self.zeroed is not None and self.zeroed[0] is module:
            output = output.clone()
            output[:, :, self.zeroed[1]] = 0
        if options.get("s_aux") is not None:
            self.sinks.add(module)
        self.matrices.setdefault(module, []).append(matrices)
        self.outputs.setdefault(module, []).append(output)
        return output, matrices


_NAME = "stock_attention"


@contextmanager
def stock_attention(model: PreTrainedModel) -> Iterator[StockAttention]:
    """Inside the block every attention of the model is the recorded eager one."""
    attention = StockAttention()
    AttentionInterface.register(_NAME, attention)
    AttentionMaskInterface.register(_NAME, eager_mask)
    candidates = [getattr(module, "config", None) for module in model.modules()]
    configs = {id(config): config for config in candidates if isinstance(config, PreTrainedConfig)}
    names = {key: config._attn_implementation_internal for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation_internal = _NAME
        yield attention
    finally:
        for key, config in configs.items():
            config._attn_implementation_internal = names[key]


def possible_inputs(model: PreTrainedModel) -> list[Inputs]:
    """The inputs below that a model's forward method names."""
    known = inspect.signature(model.forward).parameters.keys()
    return [inputs for inputs in _inputs_of_all_kinds(model) if inputs.keys() <= known]


def _inputs_of_all_kinds(model: PreTrainedModel) -> Iterator[Inputs]:
    """Text, images, sound and embeddings, for an encoder-decoder with its decoder's text."""
    generator = torch.Generator().manual_seed(1)
    config = model.config.get_text_config()
    padding = config.pad_token_id if isinstance(getattr(config, "pad_token_id", None), int) else 0

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    ids = torch.randint(5, TOKENS - 10, (2, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, LENGTH - 3 :] = 0
    text = {"input_ids": torch.where(mask.bool(), ids, padding), "attention_mask": mask}
    image_size = getattr(model.config, "image_size", 16)
    if isinstance(image_size, list | tuple):
        image_size = image_size[0]
    image_size = image_size if isinstance(image_size, int) else 16
    image = {"pixel_values": random(2, 3, image_size, image_size)}
    mels = getattr(model.config, "num_mel_bins", None) or 8
    frames = 2 * (getattr(model.config, "max_source_positions", None) or 20)
    decoder = {"decoder_input_ids": ids.flip(1)}
    if model.config.is_encoder_decoder:
        yield {**text, **decoder}
        yield {"input_features": random(2, mels, frames), **decoder}
        yield {"input_features": random(2, 40, mels), **decoder}
        yield {"input_values": random(2, 400), **decoder}
        yield {**image, **decoder}
    yield {**text, **image}
    yield text
    yield {"input_ids": ids}
    yield image
    yield {"input_features": random(2, mels, frames)}
    yield {"input_features": random(2, 40, mels)}
    yield {"input_values": random(2, 400)}
    yield {"inputs_embeds": random(2, LENGTH, WIDTH)}
    # Vision models that take the patches of all images in one row, with the grid of each.
    yield {"hidden_states": random(16, 3 * 16), "grid_thw": torch.tensor([[1, 4, 4]])}
    yield {"hidden_states": random(2, LENGTH, WIDTH)}


def main_output(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor:
    """The tensor that says most of what a model answers; of real tokens alone."""
    with torch.no_grad():
        outputs = model(**inputs)
    values = outputs if isinstance(outputs, Mapping) else {}
    names = ("logits", "logits_per_text", "last_hidden_state", "pooler_output", "image_embeds")
    tensors = [values[name] for name in names if isinstance(values.get(name), Tensor)]
    values_of_output = outputs.values() if isinstance(outputs, Mapping) else outputs
    if isinstance(values_of_output, Tensor):
        tensors.append(values_of_output)
    else:
        tensors += [
            value
            for value in values_of_output
            if isinstance(value, Tensor) and value.is_floating_point()
        ]
    if not tensors:
        raise NotTestedError("its output holds no tensor")
    output = tensors[0]
    if not output.isfinite().all():
        raise NotTestedError("its output is not finite")
    mask = inputs.get("attention_mask")
    if mask is not None and output.shape[:2] == mask.shape and "decoder_input_ids" not in inputs:
        return output[mask.bool()]
    return output
