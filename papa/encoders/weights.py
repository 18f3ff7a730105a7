"""An encoder's weights: pickles made safetensors once, models loaded from safetensors, copies that
share them.
"""

from __future__ import annotations

import pickle
import re
import shutil
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from papa.encoders.files import (
    CONFIGURATION,
    SAFETENSORS,
    converted_folder,
    digest_of_source,
    encoder_digest,
    tokenizer_digest,
    tokenizer_files,
    weight_files,
)
from papa.encoders.reference import EncoderReference, check_read, watched
from papa.errors import DamagedError, EncoderError, in_one_line
from papa.storage.artifacts import folder_written, verify
from papa.storage.remembered import Watched

_POOLER = 2_000_000
"""Weights that files may lack: those of the pooler, which PAPA does not use."""
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


def as_safetensors(folder: Path, digest: str, what: str) -> Path:
    """A folder in this machine's cache with the same encoder, checked against its digests,
    and its weights as safetensors; pickles are read once.
    """
    converted = converted_folder(digest)
    converted.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(converted.with_suffix(".lock")):
        if not _holds(converted, digest):
            pickles = weight_files(folder, what).paths
            others = [folder / CONFIGURATION, *tokenizer_files(folder)]
            files = Watched(f"{what} in {folder}", [*pickles, *others], EncoderError)
            with folder_written(
                converted, {"encoder": what, "digest_of_source": digest}
            ) as scratch:
                save_file(_read(pickles, what), scratch / SAFETENSORS, metadata={"format": "pt"})
                for path in others:
                    shutil.copyfile(path, scratch / path.name)
                files.check_digest(
                    digest, digest_of_source(encoder_digest(folder, what), tokenizer_digest(folder))
                )
                check_size(scratch, what)
                load_model(scratch, what)
    return converted


def _holds(converted: Path, digest: str) -> bool:
    """Whether what was converted is there, every byte as it was written."""
    with suppress(DamagedError):
        return bool(verify(converted).get("digest_of_source") == digest)
    return False


def load_model(
    folder: Path,
    what: str,
    *,
    dtype: str | torch.dtype = "auto",
    attention: str = "eager",
    head: str = "AutoModel",
) -> nn.Module:
    """Load the model of an encoder from its safetensors, by a class of transformers; of one with a
    head every weight is needed.

    Raises:
        ValueError: the architecture has no such implementation of attention.
    """
    import transformers

    with _quiet():
        try:
            model, loading = getattr(transformers, head).from_pretrained(
                folder,
                attn_implementation=attention,
                use_safetensors=True,
                local_files_only=True,
                dtype=dtype,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # They are refused below, in one sentence.
            )
        except SafetensorError as error:
            raise EncoderError(
                f"{what}: the weights in {folder} are damaged ({error}): get them again"
            ) from None
        except Exception as error:
            if (
                attention != "eager"
                and isinstance(error, ValueError)
                and "attention implementation" in str(error)
            ):
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
    return model


def load_reference(reference: EncoderReference, **how: str) -> tuple[nn.Module, Watched]:
    """The model that a reference stands for, in float32 and checked, and traces of its files."""
    folder, what = Path(reference.folder), f"encoder '{reference.name}'"
    files = watched(folder, what)
    try:
        model = load_model(folder, what, dtype=torch.float32, **how)
    finally:  # What is wrong with other weights is not what matters.
        check_read(reference, files)
    return model, files


def check_size(folder: Path, what: str) -> None:
    """Refuse a configuration that describes far more weights than the files hold: they would be
    made up in memory.
    """
    from transformers import AutoConfig, AutoModel

    try:
        with _quiet(), torch.device("meta"):
            model = AutoModel.from_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    except Exception:  # Loading it says what is wrong.
        return
    described = sum(parameter.numel() for parameter in model.parameters())
    # A weight takes a byte at least.
    held = sum(path.stat().st_size for path in weight_files(folder, what).paths)
    if described > held + _POOLER:
        raise EncoderError(
            f"{what}: weights do not fit: {CONFIGURATION} in {folder} describes {described:,} of "
            f"them, and the files have room for {held:,} at most: give a folder or hub name whose "
            "weights and config.json belong together"
        )


def _read(pickles: Sequence[Path], what: str) -> dict[str, Tensor]:
    """The tensors of pickles by name, contiguous and unshared, as safetensors needs."""
    tensors: dict[str, Tensor] = {}
    memory: set[int] = set()
    for path in pickles:
        for name, tensor in _unpickled(path, what).items():
            address = tensor.untyped_storage().data_ptr()
            tensors[name] = tensor.clone() if address in memory else tensor.contiguous()
            memory.add(address)
    return tensors


def _unpickled(path: Path, what: str) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings(action="ignore"):
            content: Any = torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
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
