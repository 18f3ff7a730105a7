"""An export has its study's hidden states and ``papa.ablated``'s, and is an ordinary model."""

import copy
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import papa
from papa.files import sha256_of_file
from papa.heads.constants import ConstantMatrices
from tests.library.pages import PAGE, pasted
from tests.make import outputs_of, random_model

FIRST = ["the doll wriggled and ran", "had you eaten more", "facts", "day by day the facts murky"]
SECOND = ["a doll", "less is more and more is less", "nobody knows", "why"]
SLOTS = 64
HEADS = [(0, 1), (0, 2), *((1, head) for head in range(4)), (2, 0)]
EVERY = [(layer, head) for layer in range(3) for head in range(4)]
TOLERANCE = 1e-5
RELATIVE = ("mpnet", "deberta", "deberta_near", "deberta_v3", "deberta_v2_xlarge")
"""Their layers compute attention by themselves."""


def tokenizer_of(family: str = "bert") -> Any:
    words = sorted({word for text in (*FIRST, *SECOND) for word in text.split()})
    if family in ("roberta", "mpnet"):
        tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted({*"".join(words), "Ġ"})]
        return transformers.RobertaTokenizer(vocab=numbered(tokens), merges=[])
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    return transformers.ElectraTokenizer(vocab=numbered(tokens))


def numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def constants(layers: int = 3, heads: int = 4, seed: int = 1) -> Tensor:
    """Sharp rows: near-uniform ones would make any two sets of heads alike."""
    torch.manual_seed(seed)
    return (4 * torch.randn(layers, heads, SLOTS, SLOTS)).softmax(dim=-1)


def states(model: Any, inputs: Any) -> list[Tensor]:
    hidden = outputs_of(model, inputs).last_hidden_state
    masks = inputs["attention_mask"].bool()
    return [text[mask] for text, mask in zip(hidden, masks, strict=True)]


def difference(actual: Any, expected: Any) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(actual, expected, strict=True))


def in_slots(model: Any, tokenizer: Any, pairs: bool = False) -> dict[str, Tensor]:
    """The texts padded to S slots, as DESIGN of the layout has them: [SEP] in the last one."""
    names = ("attention_mask", "token_type_ids")
    shape = (len(FIRST), SLOTS)
    full = {name: torch.zeros(shape, dtype=torch.long) for name in names}
    full["input_ids"] = torch.full(shape, tokenizer.pad_token_id)
    for row, texts in enumerate(zip(FIRST, SECOND, strict=True)):
        encoding = tokenizer(*texts[: 1 + pairs])
        first = encoding["input_ids"].index(tokenizer.sep_token_id)
        rest = len(encoding["input_ids"]) - first - 1
        slots = [*range(first), *range(SLOTS // 2, SLOTS // 2 + rest), SLOTS - 1]
        for name, values in encoding.items():
            full[name][row, slots] = torch.tensor(values)
    if model.config.model_type in ("distilbert", "modernbert", "mpnet"):
        full.pop("token_type_ids")
    return full


def padded(tokenizer: Any, pairs: bool = False) -> Any:
    return tokenizer(FIRST, *([SECOND] if pairs else []), padding=True, return_tensors="pt")


def saved(
    model: Any,
    tokenizer: Any,
    to: Path,
    matrices: Tensor | None = None,
    *,
    pairs: bool = False,
    heads: list[tuple[int, int]] = HEADS,
) -> Any:
    used = constants() if matrices is None else matrices
    papa.export(model, tokenizer, heads=heads, substitute=used, folder=to, pairs=pairs)
    return AutoModel.from_pretrained(to), AutoTokenizer.from_pretrained(to)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saved(random_model("bert").float(), tokenizer_of(), tmp_path / "export")
    return tmp_path / "export"


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(
    "family", ["bert", "roberta", "electra", "distilbert", "albert", "modernbert", *RELATIVE]
)
def test_hidden_states_are_the_studys(family: str, pairs: bool, tmp_path: Path) -> None:
    model = random_model(family).float()
    tokenizer = tokenizer_of(family)
    encoder = papa.load_encoder(model, tokenizer, slots=SLOTS, device="cpu")
    texts: Any = list(zip(FIRST, SECOND, strict=True)) if pairs else FIRST

    def of_study(matrices: Tensor) -> list[Tensor]:
        with papa.replaced(encoder, HEADS, substitute=matrices):
            return [text[:, -1] for text in papa.features(encoder, texts, progress=False)]

    expected = of_study(banded())
    exported, tokens = saved(model, tokenizer, tmp_path / "export", banded(), pairs=pairs)
    for side in ("right", "left"):
        tokens.padding_side = side
        assert difference(states(exported, padded(tokens, pairs)), expected) < TOLERANCE
    with papa.ablated(model, HEADS, substitute=banded()):
        ablated_states = states(model, in_slots(model, tokenizer, pairs))
        assert difference(ablated_states, expected) < TOLERANCE
    assert difference(of_study(constants(seed=2)), expected) > 0.1


def replica_of(model: torch.nn.Module) -> Any:
    """Return what ``torch.nn.DataParallel`` makes of a model for one device, as its ``replicate``
    does, which needs GPUs: a copy of each module, and of its tensors.
    """
    copies: dict[torch.nn.Module, Any] = {
        module: module._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        for module in model.modules()
    }
    for module, replica in copies.items():
        for name, child in module.named_children():
            setattr(replica, name, copies[child])
        for name, parameter in module._parameters.items():
            setattr(replica, name, None if parameter is None else parameter.detach().clone())
        for name, buffer in module._buffers.items():
            replica._buffers[name] = None if buffer is None else buffer.clone()
    return copies[model]


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert"])
def test_a_replica_of_data_parallel_computes_with_its_own_tensors(
    family: str, tmp_path: Path
) -> None:
    exported, tokens = saved(random_model(family).float(), tokenizer_of(family), tmp_path)
    texts = padded(tokens)
    expected = states(exported, texts)
    replica = replica_of(exported)
    exported.to("meta")  # Whatever a replica takes from its model has no numbers any more.
    assert difference(states(replica, texts), expected) < TOLERANCE
    with torch.no_grad():
        replica.inner.get_input_embeddings().weight.neg_()
    assert difference(states(replica, texts), expected) > 0.1, "negative control"


@pytest.mark.parametrize("family", RELATIVE)
def test_replicas_of_layers_that_compute_attention_themselves_are_refused(
    family: str, tmp_path: Path
) -> None:
    exported, _ = saved(random_model(family).float(), tokenizer_of(family), tmp_path)
    with pytest.raises(papa.PapaError, match="DistributedDataParallel"):
        replica_of(exported)


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert", *RELATIVE])
def test_constant_heads_have_no_queries_and_keys(family: str, tmp_path: Path) -> None:
    model = random_model(family).float()
    tokenizer = tokenizer_of(family)
    encoder = papa.load_encoder(model, tokenizer, slots=SLOTS, device="cpu")
    exported, tokens = saved(model, tokenizer, tmp_path / "export", banded(), heads=EVERY)
    with papa.replaced(encoder, EVERY, substitute=banded()):
        features = papa.features(encoder, FIRST, progress=False)
    expected = [text[:, -1] for text in features]
    assert difference(states(exported, padded(tokens)), expected) < TOLERANCE
    # A square of width, for queries and for keys of each layer with weights of its own.
    own_layers = model.config.num_hidden_groups if family == "albert" else 3
    squares = sum(weight.numel() for name, weight in model.named_parameters() if "bias" not in name)
    kept = sum(weight.numel() for name, weight in exported.named_parameters() if "bias" not in name)
    assert squares - kept >= own_layers * 2 * 32 * 32


def test_layers_that_share_weights_share_them_in_the_file(tmp_path: Path) -> None:
    model = random_model("albert").float()
    saved(model, tokenizer_of(), tmp_path / "export")
    stored = load_file(tmp_path / "export" / "model.safetensors")
    weights = sum(tensor.numel() for name, tensor in stored.items() if "constants" not in name)
    indices = sum(tensor.numel() for tensor in stored.values() if not tensor.is_floating_point())
    assert weights - indices < sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("family", ["bert", "deberta", "mpnet"])
def test_a_copy_has_weights_of_its_own(family: str, tmp_path: Path) -> None:
    """As dynamic quantisation copies a model."""
    exported, tokens = saved(
        random_model(family).float(), tokenizer_of(family), tmp_path / "export"
    )
    inputs = padded(tokens)
    before = states(exported, inputs)
    copied = copy.deepcopy(exported)
    assert difference(states(copied, inputs), before) == 0
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.mul_(2)
    assert difference(states(copied, inputs), before) > 0.1
    assert difference(states(exported, inputs), before) == 0


@pytest.mark.parametrize("family", ["bert", "deberta", "mpnet"])
def test_threads_may_call_it_at_once(family: str, tmp_path: Path) -> None:
    exported, tokens = saved(
        random_model(family).float(), tokenizer_of(family), tmp_path / "export"
    )
    batches = [padded(tokens), tokens(SECOND, padding=True, return_tensors="pt")] * 20
    expected = [states(exported, batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        computed = list(pool.map(partial(states, exported), batches))
    for actual, one_by_one in zip(computed, expected, strict=True):
        assert difference(actual, one_by_one) < TOLERANCE
    assert difference([expected[0][0][:2]], [expected[1][0][:2]]) > 0.1


@pytest.mark.parametrize("family", ["bert", "deberta"])
def test_gradients_are_the_same_with_checkpointing(family: str, tmp_path: Path) -> None:
    """Of two passes before one backward pass, which computes the layers of both again."""
    exported, tokens = saved(
        random_model(family).float(), tokenizer_of(family), tmp_path / "export"
    )
    batches = [
        tokens(FIRST, padding=True, return_tensors="pt"),
        tokens(SECOND[:1], return_tensors="pt"),
    ]

    def gradient() -> Tensor:
        exported.train()
        for module in exported.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        exported.zero_grad()
        means = [exported(**batch).last_hidden_state.pow(2).mean() for batch in batches]
        sum(means).backward()
        return exported.inner.embeddings.word_embeddings.weight.grad.clone()

    expected = gradient()
    exported.activation_checkpointing_enable()
    assert difference([gradient()], [expected]) < TOLERANCE * float(expected.abs().max())
    del batches[1]
    assert difference([gradient()], [expected]) > 0.01 * float(expected.abs().max())


def test_a_text_may_fill_every_slot(folder: Path) -> None:
    bert = random_model("bert").float()
    exported = AutoModel.from_pretrained(folder)
    tokens = AutoTokenizer.from_pretrained(folder)
    inputs = tokens([" ".join(FIRST * 9)] * 2, truncation=True, return_tensors="pt")
    assert inputs["input_ids"].shape == (2, SLOTS)
    with papa.ablated(bert, HEADS, substitute=constants()):
        expected = states(bert, inputs)
    assert difference(states(exported, inputs), expected) < TOLERANCE
    assert difference(states(bert, inputs), expected) > 0.1
    longer = {name: torch.cat([values[:, :2], values[:, 1:]], 1) for name, values in inputs.items()}
    with pytest.raises(papa.PapaError, match="input 0"):
        outputs_of(exported, longer)


def headed(kind: str) -> Any:
    family = kind.partition("For")[0].lower()
    config = random_model({"debertav2": "deberta_v2_xlarge"}.get(family, family)).config
    config.id2label = {0: "bad", 1: "good", 2: "neither"}
    # Ordinary positions and slots have the same windows then.
    config.local_attention = 4 * SLOTS
    torch.manual_seed(3)
    return getattr(transformers, kind)(config).eval()


def banded() -> Tensor:
    """Constants as averages are, 0 outside the windows of ModernBERT's local layers."""
    matrices = constants()
    slots = torch.arange(SLOTS)
    matrices[1:, :, (slots[:, None] - slots).abs() > 3] = 0
    return matrices


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("Bert", "SequenceClassification"),
        ("Roberta", "SequenceClassification"),
        ("Albert", "SequenceClassification"),
        ("ModernBert", "SequenceClassification"),
        ("Electra", "TokenClassification"),
        ("DistilBert", "MaskedLM"),
    ],
)
def test_a_models_own_head_comes_along(family: str, head: str, tmp_path: Path) -> None:
    model = headed(f"{family}For{head}")
    tokenizer = tokenizer_of(family.lower())
    papa.export(model, tokenizer, heads=HEADS, substitute=constants(), folder=tmp_path / "export")
    exported = getattr(transformers, f"AutoModelFor{head}").from_pretrained(tmp_path / "export")
    ordinary = padded(tokenizer)
    moved = in_slots(model, tokenizer)
    if family != "Roberta":  # whose positions are ordinary anyway
        moved["position_ids"] = (moved["attention_mask"].cumsum(1) - 1).clamp(min=0)
    with papa.ablated(model, HEADS, substitute=constants()):
        expected = outputs_of(model, moved).logits
    logits = outputs_of(exported, ordinary).logits
    original_logits = outputs_of(model, ordinary).logits
    if head != "SequenceClassification":
        real = ordinary["attention_mask"].bool()
        logits = logits[real]
        original_logits = original_logits[real]
        expected = expected[moved["attention_mask"].bool()]
    assert difference(logits, expected) < TOLERANCE * float(expected.abs().max())
    assert difference(logits, original_logits) > 0.01


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("family", ["Bert", "MPNet", "Deberta", "DebertaV2"])
@pytest.mark.parametrize(
    ("special", "other_special"),
    [((SLOTS - 1,), ()), ((), (SLOTS - 1,))],
    ids=["average", "matrices of no text"],
)
def test_matrices_by_position_are_read_as_papa_ablated_reads_them(
    special: tuple[int, ...],
    other_special: tuple[int, ...],
    family: str,
    pairs: bool,
    tmp_path: Path,
) -> None:
    """As a study of a native head has them."""
    model = headed(f"{family}ForSequenceClassification")
    tokenizer = tokenizer_of(family.lower())
    seen = torch.ones(SLOTS, SLOTS, dtype=torch.bool)
    matrices = ConstantMatrices(constants(), seen, "average", special=special)
    to = tmp_path / "export"
    papa.export(model, tokenizer, heads=HEADS, substitute=matrices, folder=to, pairs=pairs)
    exported = AutoModelForSequenceClassification.from_pretrained(to)
    inputs = padded(tokenizer, pairs)
    with torch.no_grad():
        with papa.ablated(model, HEADS, substitute=matrices):
            expected = model(**inputs).logits
        with papa.ablated(model, HEADS, substitute=replace(matrices, special=other_special)):
            other = model(**inputs).logits
        logits = exported(**inputs).logits
    assert difference(logits, expected) < TOLERANCE * float(expected.abs().max())
    assert difference(other, expected) > 0.01, "negative control: another slot of the last token"


def test_pipelines_take_pairs(tmp_path: Path) -> None:
    model = headed("BertForSequenceClassification")
    tokenizer = tokenizer_of()
    to = tmp_path / "to"
    papa.export(model, tokenizer, heads=HEADS, substitute=constants(), folder=to, pairs=True)
    answer = transformers.pipeline("text-classification", str(to))
    both = {"text": FIRST[0], "text_pair": SECOND[0]}
    assert answer([both])[0]["label"] in model.config.id2label.values()
    with pytest.raises(papa.PapaError, match="input 0"):
        transformers.pipeline("feature-extraction", str(to))(FIRST[0])


def test_sentence_transformers_takes_it(folder: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    assert model.max_seq_length == SLOTS
    inputs = padded(AutoTokenizer.from_pretrained(folder))
    means = [text.mean(0) for text in states(AutoModel.from_pretrained(folder), inputs)]
    assert difference(model.encode(FIRST, convert_to_tensor=True), means) < TOLERANCE


@pytest.mark.unchecked
@pytest.mark.filterwarnings("ignore")  # torch's and onnxscript's own
def test_recipes_of_page_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: run 'make setup'")
    folder.rename(tmp_path / "my-encoder")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    namespace = pasted(PAGE.parent / "how-to" / "export.md")
    both = (states(namespace[name], namespace["inputs"]) for name in ("int8", "model"))
    assert 0 < difference(*both) < 0.5
    assert namespace["states"].shape == (2, 5, 32)
    assert Path("my-other-encoder/README.md").is_file()
    session = onnxruntime.InferenceSession("model.onnx")
    inputs = {name: values[:1] for name, values in namespace["inputs"].items()}
    graph, *_ = session.run(None, {name: values.numpy() for name, values in inputs.items()})
    real = inputs["attention_mask"].bool()
    expected = outputs_of(namespace["model"], inputs).last_hidden_state[real]
    assert difference(torch.from_numpy(graph)[real], expected) < TOLERANCE


@pytest.mark.unchecked
@pytest.mark.parametrize("family", ["albert", "mpnet", "deberta_v2_xlarge"])
def test_a_graph_takes_batches_of_another_shape(family: str, tmp_path: Path) -> None:
    model = random_model(family).float()
    exported, tokens = saved(model, tokenizer_of(family), tmp_path / "export", banded())
    names = ("input_ids", "attention_mask")
    traced = {name: padded(tokens)[name][:2] for name in names}
    sizes = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    shapes = dict.fromkeys(names, sizes)
    graph = torch.export.export(exported, (), kwargs=traced, dynamic_shapes=shapes)
    fewer = tokens(SECOND, padding=True, return_tensors="pt")
    inputs = {name: fewer[name] for name in names}
    expected = states(exported, inputs)
    assert difference(states(graph.module(), inputs), expected) < TOLERANCE
    assert difference(expected, states(model, inputs)) > 0.1


def test_it_is_trained_with_dropout(folder: Path) -> None:
    exported = AutoModel.from_pretrained(folder)
    inputs = padded(AutoTokenizer.from_pretrained(folder))
    assert difference(states(exported, inputs), states(exported, inputs)) == 0
    exported.train()
    assert difference(states(exported, inputs), states(exported, inputs)) > 0.01
    exported(**inputs).last_hidden_state.pow(2).sum().backward()
    for name, parameter in exported.named_parameters():
        assert (parameter.grad is None) == ("pooler" in name), name
        assert "constants" not in name


def test_it_is_saved_as_it_was_trained(folder: Path, tmp_path: Path) -> None:
    exported = AutoModel.from_pretrained(folder)
    inputs = padded(AutoTokenizer.from_pretrained(folder))
    before = states(exported, inputs)
    with torch.no_grad():
        exported.inner.embeddings.word_embeddings.weight.mul_(2)
    exported.save_pretrained(tmp_path / "trained")
    reloaded = states(AutoModel.from_pretrained(tmp_path / "trained"), inputs)
    assert difference(reloaded, states(exported, inputs)) == 0
    assert difference(reloaded, before) > 0.1


def test_nothing_foreign_of_a_folder_is_read(folder: Path) -> None:
    (folder / "evil.py").write_text("raise SystemExit('code of the folder was run')\n")
    document = json.loads((folder / "config.json").read_text())
    document["auto_map"] = dict.fromkeys(("AutoConfig", "AutoModel"), "evil.ConstantHeadsModel")
    (folder / "config.json").write_text(json.dumps(document))
    loaded = AutoModel.from_pretrained(folder)
    assert type(loaded).__name__ == "ConstantHeadsModel"
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(papa.PapaError, match=r"model\.safetensors"):
        AutoModel.from_pretrained(folder)
    torch.save(loaded.state_dict(), folder / "pytorch_model.bin")
    path.unlink()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        AutoModel.from_pretrained(folder)


def test_an_export_of_an_earlier_version_is_refused(folder: Path) -> None:
    document = json.loads((folder / "config.json").read_text())
    document["sha256"] = document.pop("digests")
    (folder / "config.json").write_text(json.dumps(document))
    with pytest.raises(papa.PapaError, match=str(folder)):
        AutoModel.from_pretrained(folder)


def test_an_export_that_lacks_a_tensor_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    missing = min(tensors)
    del tensors[missing]
    save_file(tensors, path, metadata={"format": "pt"})
    document = json.loads((folder / "config.json").read_text())
    document["digests"] = {path.name: sha256_of_file(path)}
    (folder / "config.json").write_text(json.dumps(document))
    with pytest.raises(papa.PapaError, match=re.escape(missing)):
        AutoModel.from_pretrained(folder)


@pytest.mark.parametrize(
    ("family", "heads", "matrices", "expected"),
    [
        ("bert", [], None, "heads"),
        ("bert", [(9, 0)], None, "9"),
        ("bert", HEADS, "zeros", "constant matrices"),
        ("gpt2", HEADS, None, "gpt2"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    family: str, heads: list[tuple[int, int]], matrices: Any, expected: str, tmp_path: Path
) -> None:
    model = random_model(family)
    substitute = matrices or constants()
    with pytest.raises(papa.PapaError, match=expected):
        papa.export(
            model, tokenizer_of(), heads=heads, substitute=substitute, folder=tmp_path / "to"
        )
    assert not (tmp_path / "to").exists()


def test_a_folder_that_is_not_empty_is_refused(folder: Path) -> None:
    bert = random_model("bert").float()
    with pytest.raises(papa.PapaError, match=str(folder)):
        papa.export(bert, tokenizer_of(), heads=HEADS, substitute=constants(), folder=folder)


def test_the_card_says_how_many_heads_are_constant(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    assert "7 of 12 heads constant" in card


@pytest.mark.parametrize(("texts", "marks"), [((FIRST,), False), ((FIRST, SECOND), True)])
def test_unmarked_inputs_refused(folder: Path, texts: tuple[list[str], ...], marks: bool) -> None:
    exported = AutoModel.from_pretrained(folder)
    tokens = AutoTokenizer.from_pretrained(folder)
    inputs = tokens(*texts, add_special_tokens=marks, padding=True, return_tensors="pt")
    with pytest.raises(papa.PapaError, match="input 0"):
        outputs_of(exported, inputs)


@pytest.mark.server
@pytest.mark.parametrize("order", ["import papa; {}", "{}; import papa"])
def test_transformers_knows_it_without_imports(order: str, folder: Path) -> None:
    def invoke(code: str) -> str:
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        return run.stdout.strip() or run.stderr

    imports = order.format("from transformers import AutoModel")
    read = f"print(type(AutoModel.from_pretrained({str(folder)!r})).__name__)"
    late = "import sys; assert 'papa.exported' not in sys.modules"
    assert invoke(f"{imports}; {late}; {read}") == "ConstantHeadsModel"
    light = "import papa, sys; print({'torch', 'transformers'} & set(sys.modules))"
    assert invoke(light) == "set()"
