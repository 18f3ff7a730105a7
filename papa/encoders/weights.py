"""An encoder's weights: models made of what their files hold, safetensors or pickles of tensors
alone; copies that share them.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from papa.encoders.files import CONFIGURATION, SAFETENSORS, encoder_digest, weight_files
from papa.encoders.reference import EncoderReference
from papa.encoders.supported import read_configuration
from papa.errors import EncoderError, in_one_line

_FEW = 2_000_000
"""Weights that files may lack beside the pooler's, which PAPA does not use: loading names them."""
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_CAPTURING = "_output_capturing_hooks_installed"
"""Where transformers notes that its hooks are in place; without them it puts in new ones."""


def load_model(
    reference: EncoderReference,
    *,
    attention: str = "eager",
    head: str = "AutoModel",
    dtype: torch.dtype | str = torch.float32,
) -> nn.Module:
    """Load the model that a reference stands for, by a class of transformers; of one with a head
    every weight is needed. Files are read once, and what was read is checked.

    Args:
        dtype: "auto" takes that of its configuration or weights.

    Raises:
        ValueError: the architecture has no such implementation of attention.
    """
    import transformers

    folder, what = Path(reference.folder), f"encoder '{reference.name}'"
    config, configuration = read_configuration(folder, what)
    weights, digests = _read(folder, what)
    if (digest := encoder_digest(digests, configuration)) != reference.digest:
        raise EncoderError(
            f"{what} in {folder} changed meanwhile (expected digest {reference.digest[:12]}, found "
            f"{digest[:12]}): put back what was there, or run again with what is there now"
        )
    try:
        with _quiet():
            with torch.device("meta"):
                described = getattr(transformers, head).from_config(
                    config, attn_implementation=attention, dtype=torch.float32
                )
            _check_size(described, weights, f"{what}: weights do not fit: {folder}")
            model, loading = type(described).from_pretrained(
                None,
                config=config,
                state_dict=weights,
                attn_implementation=attention,
                dtype=dtype,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # They are refused below, in one sentence.
            )
    except EncoderError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and "attention implementation" in str(error):
            raise
        # transformers believes whatever the files say.
        raise EncoderError(
            f"{what} cannot be loaded from {folder} ({in_one_line(error)}): get it again, or "
            f"correct its {CONFIGURATION}"
        ) from None
    kind = model.config.model_type
    others = sorted(key for key in loading["mismatched_keys"] if "pooler" not in key[0])
    if others:
        name, stored, expected = others[0]
        raise EncoderError(
            f"{what}: weights do not fit the {kind} encoder that config.json describes: {name} is "
            f"{list(stored)}, expected {list(expected)}"
            + (f" (and {len(others) - 1} more)" if others[1:] else "")
            + ": "
            "give a folder or hub name whose weights and config.json belong together"
        )
    missing = sorted(
        name for name in loading["missing_keys"] if "pooler" not in name or head != "AutoModel"
    )
    if missing and head != "AutoModel":
        raise EncoderError(
            f"{what} has no head of its own for {head.removeprefix('AutoModelFor')}: its weights "
            f"lack {missing[0]}: give a model that was trained with one, or measure a probe (head: "
            "probe)"
        )
    if missing:
        raise EncoderError(
            f"{what} lacks {len(missing)} weights of a {kind} encoder ({missing[0]}, …): "
            "give a folder or hub name with the encoder's full weights"
        )
    model.name_or_path = model.config.name_or_path = str(folder)
    return model


def _check_size(described: nn.Module, weights: Mapping[str, Tensor], what: str) -> None:
    """Refuse a configuration that describes far more weights than there are: they would be made up
    in memory.
    """
    needed = sum(
        parameter.numel()
        for name, parameter in described.named_parameters()
        if "pooler" not in name
    )
    held = sum(tensor.numel() for tensor in weights.values())
    if needed > held + _FEW:
        raise EncoderError(
            f"{what}/{CONFIGURATION} describes {needed:,} of them, and the files hold {held:,}: "
            "give a folder or hub name whose weights and config.json belong together"
        )


def _read(folder: Path, what: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The weights of the encoder in a folder by name, and the SHA-256 of each file."""
    files, digests = weight_files(folder, what), {}
    tensors: dict[str, Tensor] = {}
    for path in files.paths:
        data = path.read_bytes()
        digests[path.name] = hashlib.sha256(data).hexdigest()
        try:
            tensors |= _unpickled(data, path, what) if files.pickled else load(data)
        except SafetensorError as error:
            raise EncoderError(
                f"{what}: the weights in {path} are damaged ({error}): get them again"
            ) from None
    return tensors, digests


def _unpickled(data: bytes, path: Path, what: str) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings(action="ignore"):
            content: Any = torch.load(BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        holds = (
            f"holds more than tensors ({wanted[1]})"
            if wanted
            else "is damaged, or holds more than tensors"
        )
        raise EncoderError(
            f"{what}: the pickle {path} {holds}, and PAPA loads nothing else from pickles: get it "
            f"again, or use a revision with {SAFETENSORS}"
        ) from None
    except (RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        raise EncoderError(
            f"{what}: {path} is damaged ({type(error).__name__}): get it again"
        ) from None
    # Some published files keep settings beside the weights, as plain values.
    named = content.items() if isinstance(content, dict) else ()
    tensors = {
        name: value for name, value in named if isinstance(name, str) and isinstance(value, Tensor)
    }
    if not tensors:
        raise EncoderError(
            f"{what}: {path} holds no weights by name: use a file that state_dict() was saved to"
        )
    return tensors


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars and no report of unused heads; what does not fit is raised as an error."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    # Where the environment has the last word on bars, switching them warns.
    with warnings.catch_warnings(action="ignore"):
        logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            with warnings.catch_warnings(action="ignore"):
                logging.enable_progress_bar()


def sharing_weights(model: nn.Module) -> nn.Module:
    """A copy of the modules and configuration of ``model`` whose parameters lie in the same
    memory.

    Parameters are objects of their own, so that gradient flags and moves to a device are the copy's
    alone, while an optimiser's steps on the model are seen by both. Hooks are not copied: they
    expect inputs as the model gets them.
    """
    memo: dict[int, Any] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                # deepcopy takes what its memo names for copied already.
                memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
        for buffer in module._buffers.values():
            if buffer is not None:
                memo[id(buffer)] = buffer.detach()
        for hooks in _HOOKS:
            memo[id(getattr(module, hooks))] = OrderedDict()
    copied = deepcopy(model, memo)
    for module in copied.modules():
        vars(module).pop(_CAPTURING, None)
    return copied
