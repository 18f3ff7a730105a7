"""Tiny models of every type of the installed transformers, each with what the laws say of it."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
import transformers
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from papa.errors import PapaError
from papa.heads.attention_layers import AttentionLayers, attention_parts
from papa.models.architectures import Architecture, Outcome
from papa.models.supported import family_of
from tests.architectures.configurations import VARIANTS, Variant, tiny_configuration
from tests.architectures.laws import judge, subject_of
from tests.architectures.passes import NotTestedError, main_output

_MOST_PARAMETERS = 30_000_000


def model_class(model_type: str) -> type[PreTrainedModel] | None:
    """The class with a language head of a model type, else its plain class."""
    for kind in ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_MAPPING_NAMES"):
        names = getattr(modeling_auto, kind).get(model_type)
        name = names[0] if isinstance(names, list | tuple) else names
        if name and hasattr(transformers, name):
            return getattr(transformers, name)
    return _class_with_configuration(CONFIG_MAPPING[model_type])


def _class_with_configuration(config_class: type[PreTrainedConfig]) -> type[PreTrainedModel] | None:
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
