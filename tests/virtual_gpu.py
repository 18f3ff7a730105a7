"""A device ``cuda:0`` without hardware, computed on the CPU; devices do not meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

CUDA = torch.device("cuda", 0)
MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
SCALAR = torch.ops.aten._local_scalar_dense.default
LOOK_UPS = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
"""They take indices that lie on the CPU."""


class OnDevice(Tensor):
    """A tensor that says it lies on the device; ``numbers`` has its numbers."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> OnDevice:
        with torch.inference_mode(False):
            form = {"dtype": numbers.dtype, "device": numbers.device, "strides": numbers.stride()}
            form["storage_offset"] = numbers.storage_offset()
            wrapper = Tensor._make_wrapper_subclass(cls, numbers.size(), **form)
        wrapper.numbers = numbers
        return wrapper

    device = property(lambda self: CUDA)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator's result by the numbers, on the device if anything of it was there."""
    tensors = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, OnDevice)]
    here = [tensor for tensor in tensors if not isinstance(tensor, OnDevice) and tensor.dim() > 0]
    name = func._schema.name
    looks_up = name in LOOK_UPS and isinstance(args[0], OnDevice)
    backward = torch._C._current_graph_task_id() != -1
    if there and here and not (func in MOVES or looks_up or backward):
        raise RuntimeError(f"expected all tensors on one device, found cuda:0 and cpu ({name})")
    positional, keywords = tree_map(held_of, (args, kwargs))
    keywords |= {"pin_memory": False} if "pin_memory" in keywords else {}
    with _disable_current_modes():
        result = func(*positional, **keywords)
    returns = func._schema.returns
    if len(returns) == 1 and returns[0].alias_info is not None and returns[0].alias_info.is_write:
        return kwargs.get("out", args[0] if args else None)
    device = kwargs.get("device")
    if func is SCALAR or not (there if device is None else is_cuda(device)):
        return result
    return tree_map(lambda leaf: OnDevice(leaf) if isinstance(leaf, Tensor) else leaf, result)


def is_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def held_of(value: Any) -> Any:
    if isinstance(value, OnDevice):
        return value.numbers
    return torch.device("cpu") if isinstance(value, torch.device) and is_cuda(value) else value


class Operators(TorchDispatchMode):
    # Before autograd's own modes, as fake tensors have it.
    _mode_key = torch._C._TorchDispatchModeKey.FAKE

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class ToCPU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Tensor:
        return x.numbers.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tensor:
        return OnDevice(gradients[0])


class Moves(TorchFunctionMode):
    """``to`` and its like, which never reach an operator where devices seem equal."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def indexed(argument: Any) -> Any:
            is_device_name = isinstance(argument, torch.device) or (
                isinstance(argument, str) and argument[:4] == "cuda"
            )
            return CUDA if is_device_name and is_cuda(argument) else argument

        args = tuple(map(indexed, args))
        kwargs = {name: indexed(argument) for name, argument in (kwargs or {}).items()}
        first = args[0] if args else None
        if func in (torch.tensor, torch.as_tensor) and is_cuda(kwargs.get("device")):
            return func(*args, **{**kwargs, "device": "cpu"}).to(CUDA)
        if func is Tensor.type_as:
            return first.to(args[1].device, args[1].dtype)
        if not isinstance(first, OnDevice):
            return func(*args, **kwargs)
        if func is Tensor.numpy:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        if func is Tensor.tolist:
            return first.numbers.tolist()
        if func is Tensor.cpu:
            return ToCPU.apply(first)
        if func is Tensor.to:
            devices = [value for value in args[1:] if isinstance(value, (torch.device, str))]
            target = kwargs.pop("device", devices[0] if devices else None)
            rest = [argument for argument in args[1:] if argument not in devices]
            if target is not None and not is_cuda(target):
                first = ToCPU.apply(first)
            return first.to(*rest, **kwargs) if rest or kwargs else first
        return func(*args, **kwargs)


@contextmanager
def virtual_gpu() -> Iterator[None]:
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    answers = {"is_available": True, "device_count": 1, "mem_get_info": (2**33, 2**33)}
    answers["is_bf16_supported"] = True
    try:
        with ExitStack() as stack:
            for name, answer in answers.items():
                stack.enter_context(patch.object(torch.cuda, name, return_value=answer))
            # A build for CUDA would ask the driver, which is not there.
            answer_none = patch.object(torch.accelerator, "current_accelerator", return_value=None)
            stack.enter_context(answer_none)
            stack.enter_context(Operators())
            stack.enter_context(Moves())
            yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
