"""The supported encoder families: where their attention lives, what positions mean."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedConfig

from papa.errors import EncoderError, shown
from papa.models import deberta
from papa.models.dispatch import Attend, AttentionPass, split_heads


@dataclass(frozen=True)
class Family:
    """One encoder family behind transformers' classes; unless it says otherwise, all is as in BERT.

    Attributes:
        note: what a user should know of it, in one line, for ``papa models``.
        layers: where a model's list of layers lies; or what returns its layers' modules in order,
            where layers share one.
        attention, output, norm: where in a layer's module are self-attention; W_O, the linear map
            of what all heads output, side by side; and the normalisation of a state plus what
            attention adds to it, None where layers normalise before attention.
        projections: attribute names, on a self-attention module, of the linear maps whose rows only
            heads with input-dependent attention need: queries, keys, positions. A module may lack
            some; one map may give values too.
        head_by_head: whether a map to queries, keys and values gives those of one head side by
            side, and not all queries, all keys and all values.
        segments: whether it has embeddings of segments.
        padding: the position that padding has, after which those of real tokens count, whatever
            their slots; None where positions are slots.
        prepare: what of a model does not call transformers' attention interface, or counts columns
            and must count slots; None where all is well.
        refuse: from the configuration, why a variant is not supported; None where it is.
    """

    name: str
    model_types: tuple[str, ...]
    note: str
    layers: str | Callable[[nn.Module], Iterable[nn.Module]] = "encoder.layer"
    attention: str = "attention.self"
    output: str = "attention.output.dense"
    norm: str | None = "attention.output.LayerNorm"
    projections: tuple[str, ...] = ("query", "key")
    head_by_head: bool = False
    segments: bool = True
    padding: Callable[[PreTrainedConfig], int] | None = None
    prepare: Callable[[Any, AttentionPass], None] | None = None
    refuse: Callable[[PreTrainedConfig], str | None] = lambda config: None

    def modules(self, model: nn.Module, path: str) -> list[nn.Module]:
        """Return what is at a path in each layer, such as ``attention``."""
        if isinstance(self.layers, str):
            layers: Iterable[nn.Module] = model.get_submodule(self.layers).children()
        else:
            layers = self.layers(model)
        return [layer.get_submodule(path) for layer in layers]

    def rows(
        self, linear: nn.Linear, heads: Sequence[int] | Tensor, head_count: int
    ) -> Int[Tensor, " rows"]:
        """Return the outputs of one of the ``projections`` that some heads need: queries, keys or
        positions of these heads, and where the map gives values too, those of all heads.
        """
        every_row = torch.arange(linear.out_features, device=linear.weight.device)
        if self.head_by_head:
            by_kind = every_row.unflatten(0, (head_count, -1, linear.in_features // head_count))
            by_kind = by_kind.transpose(0, 1)
        else:
            by_kind = every_row.unflatten(0, (-1, head_count, linear.in_features // head_count))
        chosen = torch.as_tensor(heads, dtype=torch.long, device=every_row.device)
        return torch.cat([by_kind[:2, chosen].flatten(), by_kind[2:].flatten()])

    def positions(self, config: PreTrainedConfig) -> int:
        before = 0 if self.padding is None else self.padding(config) + 1
        return int(config.max_position_embeddings) - before


BERT = Family(name="BERT", model_types=("bert",), note="absolute positions are slots")

ELECTRA = replace(BERT, name="ELECTRA", model_types=("electra",))


ROBERTA = Family(
    name="RoBERTa",
    model_types=("roberta", "xlm-roberta", "camembert"),
    padding=lambda config: config.pad_token_id,
    refuse=lambda config: (
        None
        if isinstance(config.pad_token_id, int)
        else "its config.json names no pad_token_id, after which its positions count: add it"
    ),
    note="absolute positions count real tokens, as with padding",
)

DISTILBERT = Family(
    name="DistilBERT",
    model_types=("distilbert",),
    layers="transformer.layer",
    attention="attention",
    output="attention.out_lin",
    norm="sa_layer_norm",
    projections=("q_lin", "k_lin"),
    segments=False,
    note="absolute positions are slots; it knows no segments",
)


def _albert_layers(model: Any) -> list[nn.Module]:
    groups = model.encoder.albert_layer_groups
    layers = model.config.num_hidden_layers
    # As transformers spreads layers over groups, rounding included.
    numbers = (int(layer / (layers / len(groups))) for layer in range(layers))
    return [groups[number].albert_layers[0] for number in numbers]


ALBERT = Family(
    name="ALBERT",
    model_types=("albert",),
    layers=_albert_layers,
    attention="attention",
    output="attention.dense",
    norm="attention.LayerNorm",
    refuse=lambda config: (
        None
        if config.inner_group_num == 1
        else f"inner_group_num is {config.inner_group_num}, so a layer attends more than once: "
        "only 1 is supported"
    ),
    note="absolute positions are slots; layers share weights but have matrices of their own",
)

MODERNBERT = Family(
    name="ModernBERT",
    model_types=("modernbert",),
    layers="layers",
    attention="attn",
    output="attn.Wo",
    norm=None,
    projections=("Wqkv",),
    segments=False,
    note="rotary positions and local windows go by slots; outside a window the average is 0",
)


class _PositionBias(NamedTuple):
    """What MPNet's layers are handed in one pass: what computes attention, and what it adds to
    scores.
    """

    attend: Attend
    bias: Float[Tensor, "#batch heads m m"]


def _attend_mpnet(
    module: Any,
    hidden_states: Float[Tensor, "batch tokens width"],
    attention_mask: Tensor | None,
    position_bias: _PositionBias,
    **_: object,
) -> tuple[Float[Tensor, "batch tokens width"], Tensor | None]:
    width: int = module.attention_head_size
    query, key, value = (
        split_heads(linear(hidden_states), width) for linear in (module.q, module.k, module.v)
    )
    output, matrices = position_bias.attend(
        module,
        query,
        key,
        value,
        attention_mask,
        dropout=module.dropout.p if module.training else 0.0,
        position_bias=position_bias.bias,
    )
    return module.o(output.flatten(2)), matrices


def _position_bias(current: AttentionPass, encoder: Any, tokens: Tensor) -> _PositionBias:
    # transformers counts from the query to the key, a pass from the key to the query.
    buckets = encoder.relative_position_bucket(-current.distances(tokens))
    bias = encoder.relative_attention_bias(buckets).movedim(-1, 1)
    return _PositionBias(current.attention_function(), bias)


def _prepare_mpnet(model: Any, current: AttentionPass) -> None:
    """Let MPNet's layers read a bias of relative positions that are distances of slots."""
    encoder = model.encoder
    encoder.compute_position_bias = partial(_position_bias, current, encoder)
    for layer in encoder.layer:
        layer.attention.attn.forward = partial(_attend_mpnet, layer.attention.attn)


MPNET = Family(
    name="MPNet",
    model_types=("mpnet",),
    attention="attention.attn",
    output="attention.attn.o",
    norm="attention.LayerNorm",
    projections=("q", "k"),
    segments=False,
    # Fixed in transformers' MPNet, whatever the configuration says.
    padding=lambda config: 1,
    prepare=_prepare_mpnet,
    note="absolute positions count real tokens, relative ones are distances of slots",
)

DEBERTA = Family(
    name="DeBERTa",
    model_types=("deberta",),
    projections=("in_proj", "pos_proj", "pos_q_proj"),
    head_by_head=True,
    prepare=deberta.prepare,
    refuse=lambda config: (
        "talking heads mix the attention of all heads, so none can be made "
        "constant alone: use a model without"
        if getattr(config, "talking_head", False)
        else None
    ),
    note="relative positions are distances of slots; talking heads are not supported",
)
DEBERTA_V2 = Family(
    name="DeBERTa v2/v3",
    model_types=("deberta-v2",),
    projections=("query_proj", "key_proj", "pos_key_proj", "pos_query_proj"),
    prepare=deberta.prepare,
    note="relative positions and v2-xlarge's convolution go by distances of slots",
)

FAMILIES = (BERT, ROBERTA, ELECTRA, DISTILBERT, ALBERT, MPNET, DEBERTA, DEBERTA_V2, MODERNBERT)


def family_of(model_type: str) -> Family | None:
    """Return the family whose configurations carry ``model_type``; None where no family does."""
    return next((family for family in FAMILIES if model_type in family.model_types), None)


def family_for(config: PreTrainedConfig, subject: str) -> Family:
    """Return the family of a configuration; EncoderError where PAPA does not measure such
    models.
    """
    family = family_of(config.model_type)
    if family is None:
        raise unsupported(subject, config.model_type)
    if getattr(config, "is_decoder", False):
        raise EncoderError(f"{subject} is causal (is_decoder): PAPA measures encoders")
    reason = family.refuse(config)
    if reason:
        raise EncoderError(f"{subject} is not supported: {reason}")
    return family


def unsupported(subject: str, kind: object) -> EncoderError:
    known = ", ".join(kind for family in FAMILIES for kind in family.model_types)
    return EncoderError(
        f"{subject}: architecture {shown(kind)} is not supported: use one of {known}, "
        "or give the model itself to papa.measure or papa.ablated"
    )
