"""An export has its study's hidden states and ``papa.ablated``'s, and is an ordinary model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

import papa
from tests.flows.conftest import hurried  # noqa: F401
from tests.library.pages import PAGE, pasted
from tests.make import random_model

pytestmark = pytest.mark.usefixtures("hurried")

FIRST = ["the doll wriggled and ran", "had you eaten more", "facts", "day by day the facts murky"]
SECOND = ["a doll", "less is more and more is less", "nobody knows", "why"]
SLOTS = 64
HEADS = [(0, 1), (0, 2), *((1, head) for head in range(4)), (2, 0)]
TOLERANCE = 1e-5


def tokenizer_of(family: str = "bert") -> Any:
    words = sorted({word for text in (*FIRST, *SECOND) for word in text.split()})
    kind = transformers.ElectraTokenizer
    merges = {}
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if family == "roberta":
        kind = transformers.RobertaTokenizer
        merges = {"merges": []}
        marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        words = sorted({*"".join(words), "Ġ"})
    return kind(vocab={token: number for number, token in enumerate(marks + words)}, **merges)


def constants(layers: int = 3, heads: int = 4, seed: int = 1) -> Tensor:
    """Sharp rows: near-uniform ones would make any two sets of heads alike."""
    torch.manual_seed(seed)
    return (4 * torch.randn(layers, heads, SLOTS, SLOTS)).softmax(dim=-1)


def states(model: Any, inputs: Any) -> list[Tensor]:
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    return [
        text_states[mask.bool()]
        for text_states, mask in zip(hidden, inputs["attention_mask"], strict=True)
    ]


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
    if model.config.model_type in ("distilbert", "modernbert"):
        full.pop("token_type_ids")
    return full


def padded(tokenizer: Any, pairs: bool = False) -> Any:
    return tokenizer(FIRST, *([SECOND] if pairs else []), padding=True, return_tensors="pt")


def saved(
    model: Any, tokenizer: Any, to: Path, matrices: Tensor | None = None, **options: Any
) -> Any:
    papa.export(
        model,
        tokenizer,
        heads=HEADS,
        substitute=constants() if matrices is None else matrices,
        folder=to,
        **options,
    )
    return AutoModel.from_pretrained(to), AutoTokenizer.from_pretrained(to)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saved(random_model("bert").float(), tokenizer_of(), tmp_path / "export")
    return tmp_path / "export"


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "modernbert"])
def test_hidden_states_are_the_studys_and_those_of_ablated(
    family: str, pairs: bool, tmp_path: Path
) -> None:
    model = random_model(family).float()
    tokenizer = tokenizer_of(family)
    encoder = papa.load_encoder(model, tokenizer, slots=SLOTS, device="cpu")
    texts: Any = list(zip(FIRST, SECOND, strict=True)) if pairs else FIRST

    def of_study(matrices: Tensor) -> list[Tensor]:
        with papa.replaced(encoder, HEADS, substitute=matrices):
            return [
                token_states[:, -1]
                for token_states in papa.features(encoder, texts, progress=False)
            ]

    expected = of_study(banded())
    exported, tokens = saved(model, tokenizer, tmp_path / "export", banded(), pairs=pairs)
    for side in ("right", "left"):
        tokens.padding_side = side
        assert difference(states(exported, padded(tokens, pairs)), expected) < TOLERANCE
    with papa.ablated(model, HEADS, substitute=banded()):
        ablated_states = states(model, in_slots(model, tokenizer, pairs))
        assert difference(ablated_states, expected) < TOLERANCE
    assert difference(of_study(constants(seed=2)), expected) > 0.1


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
    with pytest.raises(papa.PapaError, match="input 0 does not fit into 64 slots: give one text "):
        exported(**longer)


def headed(kind: str) -> Any:
    config = random_model(kind.partition("For")[0].lower()).config
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


HEADED = {
    "SequenceClassification": ("text-classification", ("Bert", "Roberta", "ModernBert")),
    "TokenClassification": ("token-classification", ("Bert", "Electra")),
    "MaskedLM": ("fill-mask", ("Bert", "DistilBert")),
}


@pytest.mark.parametrize(
    ("family", "head"), [(family, head) for head, (_, own) in HEADED.items() for family in own]
)
def test_a_models_own_head_comes_along(family: str, head: str, tmp_path: Path) -> None:
    model = headed(f"{family}For{head}")
    tokenizer = tokenizer_of(family.lower())
    by_token = head != "SequenceClassification"
    papa.export(model, tokenizer, heads=HEADS, substitute=constants(), folder=tmp_path / "export")
    exported = getattr(transformers, f"AutoModelFor{head}").from_pretrained(tmp_path / "export")
    ordinary = padded(tokenizer)
    moved = in_slots(model, tokenizer)
    if family != "Roberta":  # whose positions are ordinary anyway
        moved["position_ids"] = (moved["attention_mask"].cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        with papa.ablated(model, HEADS, substitute=constants()):
            expected = model(**moved).logits
        logits = exported(**ordinary).logits
        original_logits = model(**ordinary).logits
    if by_token:
        logits, original_logits = (
            entity[ordinary["attention_mask"].bool()] for entity in (logits, original_logits)
        )
        expected = expected[moved["attention_mask"].bool()]
    assert difference(logits, expected) < TOLERANCE * float(expected.abs().max())
    assert difference(logits, original_logits) > 0.01
    labels = ordinary["input_ids"] % 3 if by_token else torch.tensor([0, 1, 2, 0])
    assert exported(**ordinary, labels=labels).loss > 0
    prompt = FIRST[0].replace("doll", tokenizer.mask_token) if head == "MaskedLM" else FIRST[0]
    answer = transformers.pipeline(HEADED[head][0], str(tmp_path / "export"))([prompt])[0]
    if head == "TokenClassification":
        assert [entity["word"] for entity in answer] == FIRST[0].split()
    else:
        assert head == "MaskedLM" or answer["label"] in model.config.id2label.values()


def test_pipelines_take_pairs(tmp_path: Path) -> None:
    model = headed("BertForSequenceClassification")
    tokenizer = tokenizer_of()
    to = tmp_path / "to"
    papa.export(model, tokenizer, heads=HEADS, substitute=constants(), folder=to, pairs=True)
    answer = transformers.pipeline("text-classification", str(to))
    both = {"text": FIRST[0], "text_pair": SECOND[0]}
    assert answer([both])[0]["label"] in model.config.id2label.values()
    with pytest.raises(papa.PapaError, match="input 0 does not fit into 64 slots: give two texts"):
        transformers.pipeline("feature-extraction", str(to))(FIRST[0])


def test_an_encoder_gets_a_new_head_and_a_classifier_loses_it(folder: Path, tmp_path: Path) -> None:
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=5
    )
    inputs = padded(AutoTokenizer.from_pretrained(folder))
    assert classifier(**inputs).logits.shape == (len(FIRST), 5)
    classifier.save_pretrained(tmp_path / "classifier")
    reloaded = AutoModel.from_pretrained(tmp_path / "classifier")
    assert (
        difference(states(reloaded, inputs), states(AutoModel.from_pretrained(folder), inputs)) == 0
    )


def test_sentence_transformers_takes_it_and_saves_it(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    assert model.get_embedding_dimension() == 32
    assert model.max_seq_length == SLOTS
    embeddings = model.encode(FIRST, convert_to_tensor=True)
    tokens = padded(AutoTokenizer.from_pretrained(folder))
    means = [
        text_states.mean(0) for text_states in states(AutoModel.from_pretrained(folder), tokens)
    ]
    assert difference(embeddings, means) < TOLERANCE
    model.save_pretrained(str(tmp_path / "saved"))
    reloaded = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert difference(reloaded.encode(FIRST, convert_to_tensor=True), embeddings) < TOLERANCE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's and onnxscript's own
@pytest.mark.parametrize(("family", "pairs"), [("bert", True), ("modernbert", False)])
def test_torch_writes_its_graph(
    family: str, pairs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sizes are symbols while a graph is traced.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    model = random_model(family).float()
    tokenizer = tokenizer_of()
    exported, _ = saved(model, tokenizer, tmp_path / "export", pairs=pairs)
    names = ("input_ids", "attention_mask")
    inputs = {name: padded(tokenizer, pairs)[name] for name in names}
    sizes = {0: torch.export.Dim("texts", min=2), 1: torch.export.Dim("tokens", min=4, max=SLOTS)}
    graph = torch.onnx.export(
        exported, (), kwargs=inputs, dynamic_shapes={**dict.fromkeys(names, sizes)}, dynamo=True
    )
    graph.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for texts in (slice(0, 4), slice(1, 3)):
        some = {name: values[texts] for name, values in inputs.items()}
        graph_states, *_ = session.run(
            None, {name: values.numpy() for name, values in some.items()}
        )
        real = some["attention_mask"].bool()
        expected = exported(**some).last_hidden_state[real]
        assert difference(torch.from_numpy(graph_states)[real], expected) < TOLERANCE


@pytest.mark.unchecked
@pytest.mark.filterwarnings("ignore")  # torch's own: its quantisation is deprecated
def test_the_pages_recipes_run_when_pasted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: run 'make setup'")
    folder.rename(tmp_path / "my-encoder")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    namespace = pasted(PAGE.parent / "how-to" / "export.md")
    both = (states(namespace[name], namespace["inputs"]) for name in ("int8", "model"))
    assert 0 < difference(*both) < 0.5
    assert namespace["states"].shape == (2, 5, 32)
    assert Path("my-other-encoder/README.md").is_file()
    assert Path("model.onnx").is_file()


def test_it_is_trained_with_dropout_and_saved_as_it_is_then(folder: Path, tmp_path: Path) -> None:
    exported = AutoModel.from_pretrained(folder)
    tokens = AutoTokenizer.from_pretrained(folder)
    inputs = padded(tokens)
    assert difference(states(exported, inputs), states(exported, inputs)) == 0
    exported.train()
    assert difference(states(exported, inputs), states(exported, inputs)) > 0.01
    exported(**inputs).last_hidden_state.pow(2).sum().backward()
    without = {n for n, parameter in exported.named_parameters() if parameter.grad is None}
    assert without == {n for n, _ in exported.named_parameters() if "pooler" in n}
    assert not any("constants" in name for name, _ in exported.named_parameters())
    with torch.no_grad():
        exported.inner.embeddings.word_embeddings.weight.mul_(2)
    exported.eval().save_pretrained(tmp_path / "trained")
    reloaded_states = states(AutoModel.from_pretrained(tmp_path / "trained"), inputs)
    assert difference(reloaded_states, states(exported, inputs)) == 0
    assert difference(reloaded_states, states(AutoModel.from_pretrained(folder), inputs)) > 0.1


def test_no_code_no_changed_byte_and_no_pickle_of_a_folder_is_read(folder: Path) -> None:
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
    with pytest.raises(papa.PapaError, match=r"model\.safetensors was modified after the export"):
        AutoModel.from_pretrained(folder)
    torch.save(loaded.state_dict(), folder / "pytorch_model.bin")
    path.unlink()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        AutoModel.from_pretrained(folder)


def test_wrong_calls_end_in_a_sentence_and_right_ones_in_a_card(
    folder: Path, tmp_path: Path
) -> None:
    bert = random_model("bert").float()
    asks = transformers.BertForQuestionAnswering(bert.config)
    shared = "as its layers share their"
    calls: list[tuple[str, Any, Any, Any]] = [
        ("is not empty", bert, HEADS, constants()),
        ("heads is empty", bert, [], constants()),
        ("there is no head", bert, [(9, 0)], constants()),
        ("constant matrices", bert, HEADS, "zeros"),
        ("the constant matrices", bert, HEADS, constants(2)),
        ("give its base_model", asks, HEADS, constants()),
    ]
    for family in ("albert", "mpnet", "deberta", "deberta_v3"):
        calls.append((f"exported, {shared}", random_model(family), HEADS, constants()))
    for sentence, model, heads, matrices in calls:
        to = folder if sentence == "is not empty" else tmp_path / "to"
        with pytest.raises(papa.PapaError, match=sentence):
            papa.export(model, tokenizer_of(), heads=heads, substitute=matrices, folder=to)
        assert not (tmp_path / "to").exists()
    card = (folder / "README.md").read_text()
    assert "7 of 12 heads constant" in card
    assert len(re.findall(r"^\| \d+ × \d+ \| .* ms \| .*× \(.* to .*\) \|$", card, re.M)) == 3
    exported = AutoModel.from_pretrained(folder)
    tokens = AutoTokenizer.from_pretrained(folder)
    for texts, marks in (((FIRST[:1],), False), ((FIRST[:1], SECOND[:1]), True)):
        wrong = tokens(*texts, add_special_tokens=marks, return_tensors="pt")
        with pytest.raises(papa.PapaError, match="input 0 does not fit into 64 slots"):
            exported(**wrong)
    spelled = tokens(["less [SEP] more"], return_tensors="pt")
    assert exported(**spelled).last_hidden_state.isfinite().all()


@pytest.mark.server
@pytest.mark.parametrize("order", ["import papa; {}", "{}; import papa"])
def test_papa_makes_transformers_know_it_and_imports_neither(order: str, folder: Path) -> None:
    def invoke(code: str) -> str:
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        return run.stdout.strip() or run.stderr

    imports = order.format("from transformers import AutoModel")
    read = f"print(type(AutoModel.from_pretrained({str(folder)!r})).__name__)"
    late = "import sys; assert 'papa.exported' not in sys.modules"
    assert invoke(f"{imports}; {late}; {read}") == "ConstantHeadsModel"
    light = "import papa, sys; print({'torch', 'transformers'} & set(sys.modules))"
    assert invoke(light) == "set()"
