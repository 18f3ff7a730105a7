"""Three laws of replaced heads, for a model of any type behind transformers' attention interface.

1. An empty block changes nothing.
2. A constant equal to the model's own attention over one text reproduces its output on that text.
3. A zeroed head equals the stock model with zeros in that head's columns at the input of the first
   linear map after attention; where something else lies between, at attention's output.

The stock model's attention is that of transformers' eager function in the model's own module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

import papa
from papa.errors import PapaError
from papa.heads.attention_layers import AttentionLayers, attention_parts
from papa.models.architectures import Outcome
from papa.models.supported import family_of
from tests.architectures.passes import (
    Inputs,
    NotTestedError,
    main_output,
    possible_inputs,
    stock_attention,
)


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
    inner_models = [
        (path, inner) for path, inner in model.named_modules() if isinstance(inner, PreTrainedModel)
    ]
    owners = [owner for owner in inner_models if f"{layers.path}.".startswith(f"{owner[0]}.")]
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
        key: value[:1] if len(value) == batch else value for key, value in subject.inputs.items()
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
