"""Three laws of replaced heads, for a model of any type behind transformers' attention interface.

1. An empty block changes nothing.
2. A constant equal to the model's own attention over one text reproduces its output on that text.
3. A zeroed head equals the stock model with zeros in that head's columns at the input of the first
   linear map after attention; where something else lies between, at attention's output.

The stock model's attention is that of transformers' eager function in the model's own module.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.masking_utils import eager_mask
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.pytorch_utils import Conv1D

import papa
from papa.errors import PapaError
from papa.heads.attention_layers import AttentionLayers, attention_parts
from papa.models.architectures import Architecture, Outcome
from papa.models.supported import family_of
from tests.architectures.configurations import TOKENS, VARIANTS, WIDTH, Variant, tiny_configuration

LENGTH = 9
_MOST_PARAMETERS = 30_000_000
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


@dataclass(frozen=True)
class Subject:
    """A model with inputs, and the part of it under test; ``part`` None where it has one."""

    model: PreTrainedModel
    inputs: Inputs
    part: str | None
    layers: AttentionLayers

    @property
    def heads(self) -> int:
        return max(self.layers.head_counts)

    def is_close(self, first: Tensor, second: Tensor) -> bool:
        tolerance = 1e-3 * max(1.0, float(second.abs().max()))
        return first.shape == second.shape and float((first - second).abs().max()) <= tolerance


def subject_of(model: PreTrainedModel, name: str, parts: Mapping[str, AttentionLayers]) -> Subject:
    """The model itself with inputs that reach a part; else the model inside that owns the part."""
    layers = parts[name]
    owners = [
        (path, inner)
        for path, inner in model.named_modules()
        if isinstance(inner, PreTrainedModel) and f"{layers.path}.".startswith(f"{path}.")
    ]
    # The whole first, then the smallest model around the part.
    candidates = [model, *(inner for _, inner in reversed(owners) if inner is not model)]
    reasons: list[str] = []
    for candidate in candidates:
        inner_parts = attention_parts(candidate)
        inner_name = next(
            (key for key, value in inner_parts.items() if value.modules == layers.modules), None
        )
        if inner_name is None:
            continue
        part = inner_name if len(inner_parts) > 1 else None
        for inputs in possible_inputs(candidate):
            try:
                with stock_attention(candidate) as attention:
                    main_output(candidate, inputs)
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {str(error)[:80]}")
                continue
            family = family_of(candidate.config.model_type)
            by_itself = family is not None and family.prepare is not None
            if by_itself or set(layers.modules) <= attention.outputs.keys():
                return Subject(candidate, inputs, part, inner_parts[inner_name])
    raise NotTestedError(f"no input reaches it ({reasons[0] if reasons else 'not called'})")


def empty_block_changes_nothing(subject: Subject) -> bool:
    """Law 1, also after the block."""
    plain = main_output(subject.model, subject.inputs)
    with papa.ablated(subject.model, {}, substitute="zeros", part=subject.part):
        inside = main_output(subject.model, subject.inputs)
    after = main_output(subject.model, subject.inputs)
    return subject.is_close(inside, plain) and subject.is_close(after, plain)


def own_attention_reproduces_output(subject: Subject) -> bool:
    """Law 2. NotTestedError where matrices of one text are no square of its tokens."""
    batch = max(len(value) for value in subject.inputs.values())
    one_text = {
        name: value[:1] if len(value) == batch else value for name, value in subject.inputs.items()
    }
    if "grid_thw" in one_text:
        one_text = subject.inputs
    try:
        with stock_attention(subject.model) as attention:
            plain = main_output(subject.model, one_text)
    except Exception as error:
        raise NotTestedError(f"it takes no single text ({type(error).__name__})") from None
    calls = dict.fromkeys(subject.layers.modules, 0)
    by_layer: dict[int, Tensor] = {}
    for number, module in zip(subject.layers.numbers, subject.layers.modules, strict=True):
        recorded = attention.matrices.get(module, [])
        if not recorded:
            raise NotTestedError("its attention has no matrices to compare with")
        matrices = recorded[min(calls[module], len(recorded) - 1)]
        calls[module] += 1
        occurrences = subject.layers.modules.count(module)
        if len(recorded) > occurrences and not torch.equal(recorded[0], recorded[-1]):
            raise NotTestedError("its layers run several times a pass, each with another attention")
        if module in attention.sinks and (matrices.sum(dim=-1) > 1 - 1e-3).all():
            raise NotTestedError("the matrices that it returns leave out its learned sinks")
        if matrices is None or matrices.dim() != 4 or len(matrices) != 1:
            raise NotTestedError("a pass over one text is several calls of attention")
        if matrices.shape[-1] != matrices.shape[-2]:
            raise NotTestedError("keys are not the tokens of the text")
        by_layer[number] = matrices[0]
    shapes = {matrices.shape for matrices in by_layer.values()}
    if len(shapes) > 1:
        raise NotTestedError("layers see different numbers of tokens")
    constant = torch.zeros(subject.layers.layer_count, *shapes.pop())
    for number, matrices in by_layer.items():
        constant[number] = matrices
    every_head = {number: range(subject.heads) for number in subject.layers.numbers}
    with papa.ablated(subject.model, every_head, substitute=constant, part=subject.part):
        replaced = main_output(subject.model, one_text)
    return subject.is_close(replaced, plain)


def zeros_equal_a_hook(subject: Subject) -> bool:
    """Law 3, for one head of the first and one of the last layer with attention."""
    family = family_of(subject.model.config.model_type)
    if family is not None and family.prepare is not None:
        raise NotTestedError("computes attention by itself: tests/heads/test_in_place.py")
    head = max(0, subject.heads - 2)
    for index in sorted({0, len(subject.layers.modules) - 1}):
        module = subject.layers.modules[index]
        if subject.layers.modules.count(module) > 1:
            raise NotTestedError("layers share their modules")
        expected = _without_head(subject, module, head)
        number = subject.layers.numbers[index]
        with papa.ablated(subject.model, {number: [head]}, substitute="zeros", part=subject.part):
            if not subject.is_close(main_output(subject.model, subject.inputs), expected):
                return False
    return True


def _without_head(subject: Subject, module: nn.Module, head: int) -> Tensor:
    """The stock model's output without one head."""
    model = subject.model
    projection: nn.Module | None = None

    def note_first(linear: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        nonlocal projection
        outputs = attention.outputs.get(module, [])
        if projection is None and outputs:
            states = arguments[0]
            output = outputs[-1]
            passed_on = output.flatten(2).numel() == states.numel() and torch.equal(
                output.flatten(), states.flatten()
            )
            projection = linear if passed_on else module

    linears = [layer for layer in model.modules() if isinstance(layer, nn.Linear | Conv1D)]
    hooks = [linear.register_forward_pre_hook(note_first) for linear in linears]
    try:
        with stock_attention(model) as attention:
            main_output(model, subject.inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if projection is None or projection is module:
        with stock_attention(model) as attention:
            attention.zeroed = (module, head)
            return main_output(model, subject.inputs)
    width = attention.outputs[module][-1].shape[-1]

    def without_columns(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        states = arguments[0].clone()
        states[..., head * width : (head + 1) * width] = 0
        return (states, *arguments[1:])

    hook = projection.register_forward_pre_hook(without_columns)
    try:
        return main_output(model, subject.inputs)
    finally:
        hook.remove()


LAWS: tuple[Callable[[Subject], bool], ...] = (
    empty_block_changes_nothing,
    own_attention_reproduces_output,
    zeros_equal_a_hook,
)


def judge(subject: Subject) -> tuple[Outcome, str]:
    """What the laws say of one model or part, and why where they do not all hold."""
    not_applicable: list[str] = []
    for number, law in enumerate(LAWS, 1):
        try:
            holds = law(subject)
        except NotTestedError as error:
            not_applicable.append(f"law {number}: {error}")
            continue
        except PapaError as error:
            return Outcome.REFUSED, str(error)
        except Exception as error:
            return Outcome.FAILS, f"law {number}: {type(error).__name__}: {str(error)[:120]}"
        if not holds:
            return Outcome.FAILS, f"law {number} does not hold"
    if not_applicable:
        return Outcome.PARTLY, "; ".join(not_applicable)
    return Outcome.PASSES, ""


def model_class(model_type: str) -> type[PreTrainedModel] | None:
    """The class with a language head of a model type, else its plain class."""
    for mapping in (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_MAPPING_NAMES,
    ):
        names = mapping.get(model_type)
        name = names[0] if isinstance(names, list | tuple) else names
        if name and hasattr(transformers, name):
            return getattr(transformers, name)
    return _class_with_configuration(CONFIG_MAPPING[model_type])


def _class_with_configuration(
    config_class: type[PreTrainedConfig],
) -> type[PreTrainedModel] | None:
    """The first class of a type that no mapping names, as the parts of larger models are."""
    name = config_class.__module__.replace(".configuration_", ".modeling_")
    try:
        module = import_module(name)
    except ImportError:
        return None
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, PreTrainedModel)
        and value.config_class is config_class
        and not value.__name__.endswith("PreTrainedModel")
    ]
    return classes[0] if classes else None


def tiny_model(model_type: str, variant: Variant) -> PreTrainedModel:
    """A model of this type with random weights, biases and sinks, in eval mode."""
    cls = model_class(model_type)
    if cls is None:
        raise NotTestedError("no class of its own")
    torch.manual_seed(0)
    model = cls(tiny_configuration(CONFIG_MAPPING[model_type], variant)).eval()
    if sum(parameter.numel() for parameter in model.parameters()) > _MOST_PARAMETERS:
        raise NotTestedError("no rule makes it tiny")
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and (name.endswith("bias") or "sinks" in name):
            nn.init.normal_(parameter, std=0.35)
    return model.float()


def is_outside(model_type: str) -> bool:
    """Whether the file of a model type without parts never names transformers' interface."""
    config_class = CONFIG_MAPPING[model_type]
    if config_class.sub_configs or family_of(model_type) is not None:
        return False
    spec = find_spec(config_class.__module__.replace(".configuration_", ".modeling_"))
    if spec is None or spec.origin is None:
        return False
    return "ALL_ATTENTION_FUNCTIONS" not in Path(spec.origin).read_text()


def architectures_of(model_type: str) -> list[Architecture]:
    """What the laws say of a model type: a row for each of its parts."""
    if is_outside(model_type):
        return [Architecture(model_type, "", Outcome.OUTSIDE, "")]
    reasons: list[str] = []
    for variant in VARIANTS:
        try:
            model = tiny_model(model_type, variant)
        except NotTestedError as error:
            return [Architecture(model_type, "", Outcome.UNTESTED, str(error))]
        except Exception as error:
            reasons.append(f"not built: {type(error).__name__}: {str(error)[:80]}")
            continue
        try:
            parts = attention_parts(model)
        except PapaError as error:
            outside = "outside of transformers' attention" in str(error)
            outcome = Outcome.OUTSIDE if outside else Outcome.REFUSED
            return [Architecture(model_type, "", outcome, "" if outside else str(error))]
        rows = [_judged(model_type, model, name, parts) for name in sorted(parts)]
        if any(row.outcome is not Outcome.UNTESTED for row in rows):
            return rows
        reasons.append(rows[0].note)
    return [Architecture(model_type, "", Outcome.UNTESTED, reasons[0])]


def _judged(
    model_type: str, model: PreTrainedModel, name: str, parts: Mapping[str, AttentionLayers]
) -> Architecture:
    part = name if len(parts) > 1 else ""
    try:
        subject = subject_of(model, name, parts)
        outputs = [main_output(subject.model, subject.inputs) for _ in range(2)]
        if not subject.is_close(*outputs):
            raise NotTestedError("two passes differ: it draws random numbers")
    except NotTestedError as error:
        return Architecture(model_type, part, Outcome.UNTESTED, str(error))
    except PapaError as error:
        return Architecture(model_type, part, Outcome.REFUSED, str(error))
    outcome, note = judge(subject)
    return Architecture(model_type, part, outcome, note)
