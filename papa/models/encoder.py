"""A frozen encoder that runs on micro-batches, and refuses NaN and infinity with their cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.errors import EncoderError, NumbersError, joined
from papa.models.dispatch import PACKED, Dispatch
from papa.models.layer import Observe, Observing, Rule, StopForward, at_least_single, indices
from papa.models.reference import EncoderReference, check_device, check_precision
from papa.models.supported import Family, family_for
from papa.models.weights import load_model, sharing_weights
from papa.progress import Progress, ignore_progress
from papa.spec import Precision
from papa.text.batches import MicroBatch


class Encoder:
    """A pretrained encoder, frozen and in eval mode, whose attention passes through a dispatch.

    What runs is a copy of the modules of ``model`` that shares its weights' memory. In bfloat16 a
    CPU's linear maps and attention take and give bfloat16, a GPU's are autocast; hidden states are
    float32 all the same. layers, heads, width, head_width are L, H, d and d/H.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        device: str | torch.device = "cpu",
        precision: Precision = "float32",
    ) -> None:
        self.family = family = family_for(model.config, "this model")
        self._original = model
        model = sharing_weights(model)
        config = model.config
        if getattr(model, "dtype", None) in (torch.float16, torch.bfloat16):
            model.float()
        if hasattr(model, "pooler"):
            # It reads [CLS] alone, and probes read every slot.
            model.pooler = None  # type: ignore[assignment]
        if getattr(model, "_supports_attention_backend", False):
            model.set_attn_implementation(PACKED)
        self.model = model.requires_grad_(False).eval().to(device)
        self.device = torch.device(device)
        self.precision = precision
        self.config = config
        self.layers = int(config.num_hidden_layers)
        self.heads = int(config.num_attention_heads)
        self.width = int(config.hidden_size)
        self.head_width = self.width // self.heads
        if precision == "bfloat16" and self.device.type == "cpu":
            _hold_in_bfloat16(model)
        modules = family.modules(model, family.attention)
        self.dispatch = Dispatch(modules, self.heads)
        self.ruled = self.dispatch.ruled
        for module in dict.fromkeys(modules):
            # The interface hands its function the module and nothing else of ours.
            module.papa_dispatch = self.dispatch  # type: ignore[assignment]
            for name in family.projections:
                # Queries and keys (or values too, side by side) of the heads alone that need them.
                linear = getattr(module, name, None)
                if linear is not None:
                    linear.forward = partial(_project, family, linear, linear.forward, module)
        if family.prepare is not None:
            family.prepare(model, self.dispatch)

    @property
    def can_have_twins(self) -> bool:
        """Whether a twin speeds it up, and computes the same: on a CPU, without dropout.

        In bfloat16 a twin would have weights of its own; dropout draws from PyTorch's one
        generator.
        """
        is_on_cpu = self.device.type == "cpu" and self.precision == "float32"
        return is_on_cpu and not self.model.training

    def twin(self) -> Encoder:
        """Return another encoder with the same weights in memory and the rules of the blocks around
        the call, for another thread.
        """
        twin = Encoder(self._original, self.device, self.precision)
        twin.dispatch.rules = self.dispatch.rules
        return twin

    def tokens_per_batch(self, requested: int | None) -> int:
        """Return the tokens of a micro-batch: the requested number, else what suits the device."""
        return requested or (512 if self.device.type == "cpu" else 16_384)

    @property
    def output_maps(self) -> Float[Tensor, "layers heads head_width width"]:
        """W_O of every head: its part of the linear map of what a layer's heads output."""
        maps = self.family.modules(self.model, self.family.output)
        weights = [at_least_single(cast("nn.Linear", linear).weight.T) for linear in maps]
        return torch.stack(weights).unflatten(1, (self.heads, -1))

    @property
    def attention_norm_weights(self) -> Float[Tensor, "layers width"] | None:
        """γ of each layer's normalisation after attention; None where there is none."""
        path = self.family.norm
        if path is None:
            return None
        norms = self.family.modules(self.model, path)
        return torch.stack([cast("nn.LayerNorm", norm).weight for norm in norms])

    @property
    def word_embeddings(self) -> Float[Tensor, "vocabulary embedding"]:
        return self.model.get_input_embeddings().weight

    def token_states(self, batch: MicroBatch) -> list[Float[Tensor, "tokens width"]]:
        """Return the L+1 hidden states of the real tokens alone, input by input, embeddings
        first.
        """
        outputs = self._forward(batch, output_hidden_states=True)
        layers = [states.squeeze(0) for states in outputs.hidden_states]
        check_finite(self.model, layers, batch)
        return layers if self.precision == "float32" else [states.float() for states in layers]

    def observe(
        self,
        observe: Observe,
        batches: Iterable[MicroBatch],
        rows: int = 0,
        progress: Progress = ignore_progress,
    ) -> None:
        """Call ``observe`` with every layer of all batches, which hold so many rows; layers after
        the last attention are not computed.
        """
        done = 0
        rules: dict[int, Rule] = {
            layer: Observing(observe=observe, layer=layer, last=layer == self.layers - 1)
            for layer in range(self.layers)
        }
        with self.ruled(rules):
            for batch in batches:
                with suppress(StopForward):
                    self._forward(batch)
                done += len(batch.rows)
                progress(done, rows)

    def _inputs(self, batch: MicroBatch) -> dict[str, Int[Tensor, "1 tokens"]]:
        """Return what the model is called with: packed tokens, all of them real, with the
        positions and segments of its family.
        """
        ids = batch.input_ids
        padding = self.family.padding
        positions = batch.slot_ids
        if padding is not None:
            positions = batch.positions_in_input + padding(self.config) + 1
        mask = torch.ones_like(ids)
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        if self.family.segments:
            # A tokenizer may tell apart segments that the model has no embeddings for.
            last = max(getattr(self.config, "type_vocab_size", 2) - 1, 0)
            inputs["token_type_ids"] = batch.token_type_ids.clamp(max=last)
        return {name: numbers[None] for name, numbers in inputs.items()}

    def _forward(self, batch: MicroBatch, **options: bool) -> Any:
        batch = batch.to(self.device)
        self.dispatch.begin(batch)
        inputs = self._inputs(batch)
        autocast = self.precision == "bfloat16" and self.device.type != "cpu"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=autocast):
            output = self.model(**inputs, return_dict=True, **options)
        # Silence here would report scores of heads that were never replaced.
        calls = self.dispatch.calls.total()
        if calls != self.layers:
            raise EncoderError(
                f"{calls} of {self.layers} layers sent their attention through PAPA: the model or "
                "its configuration was changed after it was wrapped; load it again"
            )
        return output


def load_encoder(reference: EncoderReference, device: str = "cpu") -> Encoder:
    """Load the encoder of ``reference`` from its local folder."""
    check_device(device)
    check_precision(reference.precision, device)
    return Encoder(load_model(reference), device, reference.precision)


def _hold_in_bfloat16(model: nn.Module) -> None:
    """Round the linear maps of layers, which are in lists of modules; they take any dtype."""
    stacks = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    for linear in dict.fromkeys(module for stack in stacks for module in stack.modules()):
        if isinstance(linear, nn.Linear):
            linear.to(torch.bfloat16)
            linear.register_forward_pre_hook(lambda _, inputs: (inputs[0].to(torch.bfloat16),))


def _project(
    family: Family,
    linear: nn.Linear,
    whole: Callable[[Tensor], Tensor],
    module: nn.Module,
    states: Float[Tensor, "1 tokens width"],
) -> Float[Tensor, "1 tokens own_width"]:
    dispatch = cast("Dispatch", module.papa_dispatch)
    heads = dispatch.dependent_heads(module)
    if heads is None:
        return whole(states)
    head_width = states.shape[-1] // dispatch.heads
    gives_values = linear.out_features > states.shape[-1]
    if not heads and not gives_values:
        # Nothing is asked for: a view stands in, so that the layer can still name its shapes.
        return states[..., :head_width]
    rows = family.rows(linear, indices(heads, linear.weight.device), dispatch.heads)
    bias = None if linear.bias is None else linear.bias[rows]
    projected = F.linear(states.to(linear.weight.dtype), linear.weight[rows], bias)
    if not gives_values:
        return projected
    # Queries and keys of other heads, which nobody reads, are 0.
    all_heads = projected.new_zeros(*states.shape[:-1], linear.out_features)
    return all_heads.index_copy(-1, rows, projected)


def sum_is_finite(numbers: Float[Tensor, "..."]) -> bool:
    """Return whether the sum of the numbers is finite: no NaN and no infinite one is among them."""
    # Half precision could not hold the sum of what it holds.
    return bool(
        numbers.detach().sum(dtype=torch.promote_types(numbers.dtype, torch.float32)).isfinite()
    )


def check_finite(
    model: nn.Module, layers: Sequence[Float[Tensor, "tokens width"]], batch: MicroBatch
) -> None:
    """Raise an error if hidden states hold NaN or infinity, which later layers of the same token
    inherit.
    """
    if sum_is_finite(layers[-1]):
        return
    weights = joined(
        name for name, weight in model.named_parameters() if not weight.isfinite().all()
    )
    reason = (
        f"so do the encoder's weights {weights}: use other weights"
        if weights
        else "the encoder's weights are finite: look at their size, or lower the learning rate "
        "where matrices are trained"
    )
    for number, states in enumerate(layers):
        for token in (~states.detach().isfinite()).any(dim=1).nonzero()[:1, 0]:
            row = int(batch.rows[batch.inputs_of_tokens[token]])
            location = f"the output of layer {number - 1}" if number else "the embeddings"
            raise NumbersError(f"{location} of row {row + 1}", reason)


@contextmanager
def numbers_of(where: str) -> Iterator[None]:
    """Name ``where``, such as a batch, in the error about NaN or infinity that is found inside the
    block.
    """
    try:
        yield
    except NumbersError as error:
        location, reason = error.args
        raise NumbersError(f"{location}, {where}", reason) from None
