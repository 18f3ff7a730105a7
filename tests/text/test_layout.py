"""The arrangement in slots, of both families of tokenizers, and of the authors' code."""

from itertools import chain

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from papa.errors import DataError, EncoderError
from papa.spec import LayoutSpec
from papa.text.layout import (
    PackedTokens,
    arrange_causal,
    arrange_one,
    arrange_pair,
    pair_capacity,
    text_capacity,
)
from papa.text.tokens import (
    NO_TOKEN,
    SpecialTokens,
    masked,
    special_tokens_of,
    tokens_of_texts,
    tokens_of_words,
)
from tests.golden.tensors import load_golden


@pytest.mark.parametrize(
    ("name", "between", "types"), [("bert", 1, [0, 0, 0, 0, 1, 1]), ("roberta", 2, [0] * 7)]
)
def test_two_texts_keep_to_their_halves(
    name: str, between: int, types: list[int], request: pytest.FixtureRequest
) -> None:
    """BERT's counts the separator between to the first text, the last one to the second."""
    tokenizer = request.getfixturevalue(name)
    framing = special_tokens_of(tokenizer)
    cls = tokenizer.cls_token_id
    sep = tokenizer.sep_token_id
    arranged = arrange_pair([[11, 12], []], [[21], [31, 32]], framing, "follow", 12)
    first_ids = [cls, 11, 12, *[sep] * between, 21, sep]
    two = [cls, *[sep] * between, 31, 32, sep]
    assert arranged.input_ids.tolist() == first_ids + two
    second = [*range(6, 6 + between + 2)]
    assert arranged.slot_ids.tolist() == [0, 1, 2, *second[:-1], 11, 0, *second, 11]
    assert arranged.token_type_ids.tolist()[: len(first_ids)] == types


@pytest.mark.parametrize(("name", "between"), [("bert", 1), ("roberta", 2)])
def test_too_few_slots_for_pairs(name: str, between: int, request: pytest.FixtureRequest) -> None:
    framing = special_tokens_of(request.getfixturevalue(name))
    fewest = 2 * (between + 2)
    assert pair_capacity(framing, fewest) == (fewest // 2 - 1, 1)
    with pytest.raises(EncoderError, match=str(fewest)):
        pair_capacity(framing, fewest - 2)


def test_a_text_too_short_for_a_decoder_is_named_by_its_row_of_the_split() -> None:
    framing = SpecialTokens(cls=NO_TOKEN, sep=NO_TOKEN, pad=0)
    with pytest.raises(DataError, match="text 102 "):
        arrange_causal([[5, 6], [7]], framing, 8, first_row=100)


def test_segments_that_stay_of_pairs_of_any_length(bert: PreTrainedTokenizerBase) -> None:
    """Against the truncation of Python tokenizers, spelled out for all lengths up to S."""
    slots = 12
    for first, second in np.ndindex(slots + 1, slots + 1):
        left = [first, second]
        while sum(left) > slots - 3:
            left[0 if left[0] > left[1] else 1] -= 1
        vector = [0] * (left[0] + 2) + [1] * (left[1] + 1)
        vector += [0] * (slots - len(vector))
        pair = [list(range(100, 100 + first))], [list(range(200, 200 + second))]
        stay = arrange_pair(*pair, special_tokens_of(bert), "stay", slots)
        assert stay.token_type_ids.tolist() == [vector[slot] for slot in stay.slot_ids]


@pytest.mark.parametrize("without", ["cls", "pad", "frame", ""])
def test_tokenizers_that_cannot_write_the_layout_are_refused(without: str) -> None:
    """Without a token for it, or with all of them, of which none is added; the last can."""
    vocabulary = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if without != "frame":
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    plain = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token=None if without == "cls" else "[CLS]",
        sep_token="[SEP]",
        pad_token=None if without == "pad" else "[PAD]",
        unk_token="[UNK]",
    )
    if without:
        with pytest.raises(EncoderError):
            special_tokens_of(plain)
    else:
        assert special_tokens_of(plain).pad == 3


def test_the_authors_layout_is_met(bert: PreTrainedTokenizerBase) -> None:
    """800 inputs as the authors lay them out: cut at half the slots, [SEP] last."""
    golden = load_golden().tensors
    ids = golden["corpus.input_ids"].numpy()
    mask = golden["corpus.attention_mask"].bool().numpy()
    special_tokens = special_tokens_of(bert)
    half = LayoutSpec(one_text_truncation="half")
    limit = text_capacity(half, "text", 64)
    rows = [row[row_mask][1:-1].tolist() for row, row_mask in zip(ids, mask, strict=True)]
    # What was cut off is not stored; a full row may go on with anything.
    texts = [bert.decode(row) + " and so on" * (len(row) == limit) for row in rows]
    tokens = tokens_of_texts(bert, special_tokens, texts)
    assert max(map(len, tokens)) > limit

    def dense(capacity: int) -> tuple[list[list[int]], list[list[bool]]]:
        cut = [row[:capacity] for row in tokens]
        arranged: PackedTokens = arrange_one(cut, special_tokens, 64)
        dense_ids = np.zeros((len(rows), 64), np.int64)
        dense_mask = np.zeros((len(rows), 64), bool)
        where = np.repeat(np.arange(len(rows)), arranged.lengths), arranged.slot_ids
        dense_ids[where] = arranged.input_ids
        dense_mask[where] = True
        return dense_ids.tolist(), dense_mask.tolist()

    assert dense(limit) == (ids.tolist(), mask.tolist())
    capacities = [text_capacity(half, kind, 64) for kind in ("text", "words", "mlm", "causal")]
    assert capacities == [31, 62, 62, 64], "tasks with a label a token are left alone"
    paper = dense(text_capacity(LayoutSpec(), "text", 64))
    assert paper[0] != ids.tolist(), "the control: the paper's layout keeps more"


@pytest.mark.parametrize(
    ("name", "text"),
    [("bert", "press [SEP] or [CLS][PAD] [MASK]"), ("roberta", "press </s> or <s><pad> <mask>")],
)
def test_written_marks_are_text(name: str, text: str, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(name)
    special_tokens = special_tokens_of(tokenizer)
    ids, long, empty = tokens_of_texts(tokenizer, special_tokens, [text, "word " * 900, ""])
    assert not {*ids} & special_tokens.reserved
    assert special_tokens.unknown not in ids
    assert len(long) >= 900
    assert empty == []
    # The control: without care the same text does become special tokens.
    careless = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert {*careless} & special_tokens.reserved


def test_a_piece_of_the_vocabulary_that_is_special_becomes_unknown() -> None:
    """A Unigram vocabulary holds '</s>': telling the tokenizer to split it is not enough."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [("▁", -2.0), ("a", -3.0), ("▁b", -3.0)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
    special_tokens = special_tokens_of(tokenizer)
    split = tokenizer("a </s> b", add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert special_tokens.sep in split, "the control: the tokenizer alone yields the separator"
    (ids,) = tokens_of_texts(tokenizer, special_tokens, ["a </s> b"])
    assert special_tokens.sep not in ids
    assert special_tokens.unknown in ids


@pytest.mark.parametrize(("name", "before"), [("bert", ""), ("roberta", " ")])
def test_words_are_as_in_sentences(name: str, before: str, request: pytest.FixtureRequest) -> None:
    """A byte-level tokenizer marks the space before a word, that of a sentence's first word too."""
    tokenizer = request.getfixturevalue(name)
    rows = [["murkier", "facts", "murkier"], [], ["crazier"]]
    tokens, numbers = tokens_of_words(tokenizer, special_tokens_of(tokenizer), rows)
    sentences = [before * bool(row) + " ".join(row) for row in rows]
    assert tokens == tokenizer(sentences, add_special_tokens=False)["input_ids"]
    assert [sorted({*row}) for row in numbers] == [[0, 1, 2], [], [0]]
    assert all(row == sorted(row) for row in numbers)
    assert [len(row) for row in numbers] == [len(row) for row in tokens]


def test_a_word_that_yields_nothing_becomes_unknown(bert: PreTrainedTokenizerBase) -> None:
    words = [["the", "\u200b", "doll", " "]]
    (tokens,), (numbers,) = tokens_of_words(bert, special_tokens_of(bert), words)
    assert tokens == [1996, bert.unk_token_id, 10658, bert.unk_token_id]
    assert numbers == [0, 1, 2, 3]


def test_masking_hides_fifteen_percent_as_bert_does(bert: PreTrainedTokenizerBase) -> None:
    special_tokens = special_tokens_of(bert)
    texts = np.random.default_rng(0).integers(1000, 30000, (400, 100))
    shown, labels = map(np.array, masked(texts.tolist(), special_tokens, 3, 0, 0))
    chosen = labels != -100
    assert chosen.sum(1).tolist() == [15] * 400
    assert (labels[chosen] == texts[chosen]).all()
    assert (shown[~chosen] == texts[~chosen]).all()
    assert 0.78 < (shown[chosen] == special_tokens.mask).mean() < 0.82
    assert 0.085 < (shown[chosen] == texts[chosen]).mean() < 0.115
    strange = list(special_tokens.reserved - {special_tokens.mask})
    assert not np.isin(shown[chosen], strange).any()
    _, short = masked([[2000], [], [2001, 2002]], special_tokens, 0, 0, 0)
    assert short[:2] == [[2000], []]
    assert sum(label != -100 for label in chain(*short)) == 2, "at least one of a row with text"


def test_masking_depends_only_on_seed_split_row(bert: PreTrainedTokenizerBase) -> None:
    special_tokens = special_tokens_of(bert)
    rows = [list(range(1000, 1040))] * 6
    whole = masked(rows, special_tokens, 3, 0, 0)[1]
    assert masked(rows[4:], special_tokens, 3, 0, 4)[1] == whole[4:]
    assert whole[0] != whole[1], "rows are masked each in its own way"
    assert masked(rows, special_tokens, 4, 0, 0)[1] != whole
    assert masked(rows, special_tokens, 3, 1, 0)[1] != whole
