"""Models of a checked config.json and of weights; copies that share their weights."""

import hashlib
import re
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from papa.errors import EncoderError, in_one_line, shown
from papa.models import files
from papa.models.files import CONFIGURATION, Json
from papa.models.reference import DECODERS, EncoderReference
from papa.models.supported import family_of, unsupported

Model = TypeVar("Model", bound=nn.Module)
_REFUSED = "quantization_config", "attn_implementation", "_attn_implementation", "use_kernels"
"""Settings with which transformers would compute other attention than PAPA measures."""


def checked_configuration(document: Json, folder: Path, subject: str) -> PreTrainedConfig:
    """Return what the config.json of the encoder in ``folder`` holds, as transformers reads it."""
    path = folder / CONFIGURATION
    kind = document.get("model_type")
    if kind is None:
        raise EncoderError(
            f"{path} has no model_type, so its architecture is unknown: add the key, such as "
            '"model_type": "bert" (papa models lists them)'
        )
    if not isinstance(kind, str) or (family_of(kind) is None and kind not in DECODERS):
        raise unsupported(f"{subject}: {path}", kind)
    for name in _REFUSED:
        if document.get(name):
            raise EncoderError(
                f"{path}: {name} is {shown(document[name])}, and PAPA computes attention itself, "
                "on plain weights: remove it, or save the encoder without it"
            )
    positions = document.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise EncoderError(
            f"{path}: position_embedding_type is {shown(positions)}, which transformers does not "
            "compute any more: use an encoder with absolute positions"
        )
    try:
        config = transformers.CONFIG_MAPPING[kind].from_dict(document)
    except Exception as error:  # transformers believes whatever the file says.
        raise EncoderError(
            f"{path} cannot be read ({in_one_line(error)}): correct it, or get it again"
        ) from None
    for name in ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size"):
        count = getattr(config, name, 1)
        if count < 1:
            raise EncoderError(f"{path}: {name} is {count}, expected 1 or more: correct it")
    return config


def load_model(
    reference: EncoderReference,
    *,
    head: str = "AutoModel",
    dtype: torch.dtype = torch.float32,
    with_weights: bool = True,
) -> PreTrainedModel:
    """Return the model of a reference, by a class of transformers; what is read is checked. Without
    weights only their names and shapes count: of safetensors no more is read.
    """
    folder = Path(reference.folder)
    subject = f"encoder '{reference.name}'"
    document, configuration = files.read_configuration_file(folder, subject)
    config = checked_configuration(document, folder, subject)
    if with_weights:
        weights = _checked_weights(reference, configuration, folder, subject)
    else:
        weights = _shapes_of_weights(folder, subject)
    try:
        with _quiet():
            with torch.device("meta"):
                described = getattr(transformers, head).from_config(config, dtype=dtype)
            model, loading = type(described).from_pretrained(
                None,
                config=config,
                state_dict=weights,
                attn_implementation="eager",
                dtype=dtype,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # They are refused below, in one sentence.
            )
    except Exception as error:  # transformers believes whatever the files say.
        raise EncoderError(
            f"{subject} cannot be loaded from {folder} ({in_one_line(error)}): get it again, or "
            f"correct its {CONFIGURATION}"
        ) from None
    kind = config.model_type
    headless = head == "AutoModel"
    mismatched = sorted(key for key in loading["mismatched_keys"] if "pooler" not in key[0])
    if mismatched:
        name, stored, expected = mismatched[0]
        raise EncoderError(
            f"{subject}: {len(mismatched)} weights do not fit the {kind} encoder that "
            f"{CONFIGURATION} describes: {name} is {list(stored)}, expected {list(expected)}: "
            f"give a folder or hub name whose weights and {CONFIGURATION} belong together"
        )
    missing = sorted(key for key in loading["missing_keys"] if not headless or "pooler" not in key)
    if missing:
        raise EncoderError(
            f"{subject} lacks {len(missing)} weights of a {kind} encoder ({missing[0]}, …): give a "
            "folder or hub name with the encoder's full weights"
            if headless
            else f"{subject} has no head of its own for {head.removeprefix('AutoModelFor')}: its "
            f"weights lack {missing[0]}: give a model that was trained with one, or measure a "
            "probe (head: probe)"
        )
    model.name_or_path = model.config.name_or_path = str(folder)
    return model


def _checked_weights(
    reference: EncoderReference, configuration: str, folder: Path, subject: str
) -> dict[str, Tensor]:
    """Return the weights by name, of files that are those of the reference."""
    weights: dict[str, Tensor] = {}
    digests: dict[str, str] = {}
    for path in files.weight_files(folder):
        data = path.read_bytes()
        digests[path.name] = hashlib.sha256(data).hexdigest()
        weights |= _tensors(data, path, subject)
    digest = files.encoder_digest(digests, configuration)
    if digest != reference.digest:
        raise EncoderError(
            f"{subject} in {folder} changed meanwhile (expected digest {reference.digest[:12]}, "
            f"found {digest[:12]}): put back what was there, or run again with what is there now"
        )
    return weights


def _shapes_of_weights(folder: Path, subject: str) -> dict[str, Tensor]:
    """Return tensors in the shape of each weight: of safetensors zeros, all in the memory of one
    number; pickles are read whole.
    """
    weights: dict[str, Tensor] = {}
    for path in files.weight_files(folder):
        if path.suffix != ".safetensors":
            weights |= _tensors(path.read_bytes(), path, subject)
            continue
        try:
            with safe_open(path, "pt") as file:
                names = file.keys()
                shapes = {name: file.get_slice(name).get_shape() for name in names}
        except Exception as error:  # The library says it in many ways.
            raise EncoderError(
                f"{subject}: {path} is damaged ({in_one_line(error)}): get it again"
            ) from None
        weights |= {name: torch.zeros(()).expand(*shape) for name, shape in shapes.items()}
    return weights


def _tensors(data: bytes, path: Path, subject: str) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load(data)
        with warnings.catch_warnings(action="ignore"):
            content = torch.load(BytesIO(data), map_location="cpu", weights_only=True)
        # Some published files keep settings beside the weights, as plain values.
        return {name: value for name, value in content.items() if isinstance(value, Tensor)}
    except Exception as error:  # Of either library, which say it in many ways.
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        raise EncoderError(
            f"{subject}: {path} is damaged, or holds more than tensors "
            f"({wanted[1] if wanted else type(error).__name__}), and PAPA loads nothing else: "
            f"get it again, or use a revision with {files.SAFETENSORS}"
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' bars and its report of unused heads while the block runs; what does not
    fit is raised as an error.
    """
    level = logging.get_verbosity()
    shows_bars = logging.is_progress_bar_enabled()
    # Where the environment has the last word on bars, switching them warns.
    with warnings.catch_warnings(action="ignore"):
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if shows_bars:
                logging.enable_progress_bar()


def sharing_weights(model: Model) -> Model:
    """Return a copy of the modules of ``model``, without hooks, whose parameters share its
    memory.
    """
    # deepcopy takes what its memo names for copied already.
    memo: dict[int, object] = {id(buffer): buffer.detach() for buffer in model.buffers()}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    for module in model.modules():
        for name, hooks in vars(module).items():
            if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")):
                memo[id(hooks)] = OrderedDict()
    copied = deepcopy(model, memo)
    for module in copied.modules():
        # transformers notes there that its hooks are in place; without them it puts in new ones.
        vars(module).pop("_output_capturing_hooks_installed", None)
    return copied
