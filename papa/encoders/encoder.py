"""A frozen encoder that runs on micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import PACKED, Dispatch
from papa.encoders.finite import check_states
from papa.encoders.layer import Rule, See, StopForward, Watching, at_least_single
from papa.encoders.linear import hold_in_bfloat16, project_dependent_heads
from papa.encoders.precision import check_device, check_precision
from papa.encoders.reference import EncoderReference
from papa.encoders.supported import family_of, supported
from papa.encoders.weights import load_model, sharing_weights
from papa.errors import EncoderError
from papa.progress import Progress
from papa.spec import Precision


class Encoder:
    """A pretrained encoder, frozen and in eval mode, whose attention passes through a dispatch.

    Args:
        model: a model of a supported family. It stays as it is: what runs is a copy of its modules
            that shares the memory of its weights.
        precision: what it computes in: float32 is the precision of its weights. In bfloat16 on a
            CPU its layers' linear maps and attention take and give bfloat16
            (``papa.encoders.linear``); on a GPU it is autocast. Hidden states are float32 all the
            same.

    Attributes:
        layers, heads, width, head_width: L, H, d and d/H.
        dispatch: the rules in force on its attention.
        reference: what it was loaded from; None for a model that was given.
        precision: what it computes in, and what token probes multiply its features in.
    """

    def __init__(
        self,
        model: nn.Module,
        device: str | torch.device = "cpu",
        precision: Precision = "float32",
    ) -> None:
        config: Any = model.config
        family = family_of(config.model_type)
        if family is None:
            raise EncoderError(
                f"architecture '{config.model_type}' is not supported: use one of {supported()}"
            )
        if getattr(config, "is_decoder", False):
            raise EncoderError(
                f"this {family.name} model is causal (is_decoder): PAPA measures encoders"
            )
        reason = family.refuse(config)
        if reason is not None:
            raise EncoderError(f"this {family.name} encoder is not supported: {reason}")
        model = sharing_weights(model)
        if getattr(model, "dtype", None) in (torch.float16, torch.bfloat16):
            model.float()
        if hasattr(model, "pooler"):
            # It reads [CLS] alone, and probes read every slot.
            model.pooler = None  # type: ignore[assignment]
        if getattr(model, "_supports_attention_backend", False):
            model.set_attn_implementation(PACKED)  # type: ignore[operator]
        self.model = model.requires_grad_(False).eval().to(device)
        self.family = family
        self.config: Any = model.config
        self.device = torch.device(device)
        self.precision = precision
        self.layers: int = config.num_hidden_layers
        self.heads: int = config.num_attention_heads
        self.width: int = config.hidden_size
        self.head_width = self.width // self.heads
        self.reference: EncoderReference | None = None
        if precision == "bfloat16" and self.device.type == "cpu":
            hold_in_bfloat16(model)
        modules = list(family.attentions(model))
        self.dispatch = Dispatch(modules, self.heads)
        for module in dict.fromkeys(modules):
            # The interface hands its function the module and nothing else of ours.
            module.papa_dispatch = self.dispatch  # type: ignore[assignment]
            project_dependent_heads(module, family.projections, self.dispatch, self.head_width)
        if family.prepare is not None:
            family.prepare(model, self.dispatch)

    def tokens_per_batch(self, asked: int | None) -> int:
        """The tokens of a micro-batch: what was asked for, else what suits the device."""
        return asked or (512 if self.device.type == "cpu" else 16_384)

    @property
    def output_maps(self) -> Float[Tensor, "layers heads head_width width"]:
        """W_O of every head: its part of the linear map of what a layer's heads put out."""
        maps = self.family.output_maps(self.model)
        weights = [at_least_single(linear.weight.T) for linear in maps]
        return torch.stack(weights).unflatten(1, (self.heads, -1))

    @property
    def attention_norm_weights(self) -> Float[Tensor, "layers width"] | None:
        """γ of each layer's normalisation after attention; None where there is none."""
        norms = self.family.attention_norms
        if norms is None:
            return None
        return torch.stack([norm.get_parameter("weight") for norm in norms(self.model)])

    @property
    def word_embeddings(self) -> Float[Tensor, "vocabulary embedding"]:
        """The input embeddings of the vocabulary."""
        return self.model.get_input_embeddings().weight  # type: ignore[operator]

    def hidden_states(self, batch: MicroBatch) -> list[Float[Tensor, "batch m width"]]:
        """The L+1 hidden states of a micro-batch, embeddings first; columns without a token
        hold no meaning.
        """
        batch = batch.to(self.device)
        return [batch.unpack(states[None]) for states in self.token_states(batch)]

    def token_states(self, batch: MicroBatch) -> list[Float[Tensor, "tokens width"]]:
        """The L+1 hidden states of the real tokens alone, input by input, embeddings first."""
        layers = [
            states.squeeze(0)
            for states in self._forward(batch, output_hidden_states=True).hidden_states
        ]
        check_states(self.model, layers, batch)
        return layers if self.precision == "float32" else [states.float() for states in layers]

    def observe(self, batch: MicroBatch) -> None:
        """Run a micro-batch for what the rules see of it, and no further than they need."""
        with suppress(StopForward):
            self._forward(batch)

    def watched(self, see: See) -> AbstractContextManager[None]:
        """Inside the block every layer of what is given to ``observe`` is shown to ``see``."""
        last = self.layers - 1
        return self.ruled(
            {layer: Watching(see=see, layer=layer, last=layer == last) for layer in range(last + 1)}
        )

    def watch(self, see: See, batches: Iterable[MicroBatch], rows: int, progress: Progress) -> None:
        """Show every layer of all batches, which hold so many rows."""
        done = 0
        with self.watched(see):
            for batch in batches:
                self.observe(batch)
                done += len(batch.rows)
                progress(done, rows)

    def _forward(self, batch: MicroBatch, **options: bool) -> Any:
        batch = batch.to(self.device)
        self.dispatch.begin(batch)
        inputs = self.family.model_inputs(batch, self.config)
        with self._in_precision():
            output = self.model(**inputs, return_dict=True, **options)
        # Silence here would report scores of heads that were never replaced.
        if (seen := self.dispatch.calls.total()) != self.layers:
            raise EncoderError(
                f"{seen} of {self.layers} layers sent their attention through PAPA: the model or "
                "its configuration was changed after it was wrapped (another attention "
                "implementation, say); load it again"
            )
        return output

    def _in_precision(self) -> AbstractContextManager[Any]:
        if self.precision == "float32" or self.device.type == "cpu":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def ruled(self, rules: Mapping[int, Rule]) -> AbstractContextManager[None]:
        """Inside the block the layers follow ``rules``: queries and keys only where they ask."""
        return self.dispatch.ruled(rules)


def load_encoder(reference: EncoderReference, device: str = "cpu") -> Encoder:
    """Load the encoder of ``reference`` from its local folder."""
    check_device(device)
    check_precision(reference.precision, device)
    if reference.causal:
        raise EncoderError(
            f"'{reference.name}' is a decoder: measure it by its own head, in a study with kind: "
            "causal and head: own, or load it with papa.load_encoder for papa.measure"
        )
    encoder = Encoder(load_model(reference), device, reference.precision)
    encoder.reference = reference
    return encoder
