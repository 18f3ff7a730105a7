"""Datasets on the hub on loopback: a few rows in the very files, branches, columns and class names
of the public ones.

Where each layout was seen:

- ``nyu-mll/glue``: its card (huggingface.co/datasets/nyu-mll/glue, README.md, ``configs`` and
  ``dataset_info``) and links to its files, such as
  .../resolve/main/cola/train-00000-of-00001.parquet.
- ``eriktks/conll2003``: links to .../resolve/refs%2Fconvert%2Fparquet/conll2003/train/0000.parquet;
  its main branch holds conll2003.py; the class names are those of that script.
- ``leondz/wnut_17``: code that reads wnut_17/test/0000.parquet of the same branch; the class names
  of wnut_17.py.
- ``Salesforce/wikitext``: links to
  .../resolve/main/wikitext-103-raw-v1/train-00000-of-00002.parquet and its card.
- ``universal-dependencies/universal_dependencies``: the maintainers' ud-hf-parquet-tools on GitHub
  (generator.py, validator.py): <revision>/parquet/<treebank>/<split>.parquet, splits train, dev and
  test, revision "2.17".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from datasets import ClassLabel, Dataset, Features, List, Value

from tests.hub.server import Hub

TEXT, NUMBER = Value("string"), Value("float32")
SPLITS = ("train", "validation", "test")
PAIRED, ENTAILED = ("sentence1", "sentence2"), ["entailment", "not_entailment"]
OF_MNLI = (
    "train",
    "validation_matched",
    "validation_mismatched",
    "test_matched",
    "test_mismatched",
)
GLUE: Mapping[str, tuple[tuple[str, ...], Any, tuple[str, ...]]] = {
    "cola": (("sentence",), ["unacceptable", "acceptable"], SPLITS),
    "sst2": (("sentence",), ["negative", "positive"], SPLITS),
    "mrpc": (PAIRED, ["not_equivalent", "equivalent"], SPLITS),
    "qqp": (("question1", "question2"), ["not_duplicate", "duplicate"], SPLITS),
    "stsb": (PAIRED, None, SPLITS),
    "mnli": (("premise", "hypothesis"), ["entailment", "neutral", "contradiction"], OF_MNLI),
    "qnli": (("question", "sentence"), ENTAILED, SPLITS),
    "rte": (PAIRED, ENTAILED, SPLITS),
}
NER = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]
PENN = (
    "\" '' # $ ( ) , . : `` CC CD DT EX FW IN JJ JJR JJS LS MD NN NNP NNPS NNS NN|SYM PDT POS PRP "
    "PRP$ RB RBR RBS RP SYM TO UH VB VBD VBG VBN VBP VBZ WDT WP WP$ WRB"
)
POS = PENN.split()
CHUNK = ["O", "B-NP", "I-NP", "B-VP", "I-VP", "B-PP", "I-PP"]
WNUT = ["O"] + [
    f"{mark}-{kind}"
    for kind in ("corporation", "creative-work", "group", "location", "person", "product")
    for mark in "BI"
]
UNIVERSAL = "NOUN PUNCT ADP NUM SYM SCONJ ADJ PART DET CCONJ PROPN PRON X _ ADV INTJ VERB AUX"
UPOS = UNIVERSAL.split()
ROWS = 12
WORDS = [["Papers", "from", "Rome", "say", "so", "."], ["It", "is", "new", "."], ["Why", "?"]] * (
    ROWS // 3
)


BRANCHES = {
    ("nyu-mll/glue", "main"): "glue",
    ("eriktks/conll2003", "main"): "conll2003/main",
    ("eriktks/conll2003", "refs/convert/parquet"): "conll2003/converted",
    ("leondz/wnut_17", "main"): "wnut_17/main",
    ("leondz/wnut_17", "refs/convert/parquet"): "wnut_17/converted",
    ("Salesforce/wikitext", "main"): "wikitext",
    ("universal-dependencies/universal_dependencies", "2.17"): "ud",
}


def write_all(folder: Path) -> None:
    """Every dataset that the registry of tasks names."""
    write_glue(folder / "glue")
    write_converted(folder / "conll2003", "conll2003", conll2003())
    write_converted(folder / "wnut_17", "wnut_17", wnut_17())
    write_wikitext(folder / "wikitext")
    write_universal_dependencies(folder / "ud")


def publish_all(hub: Hub, folder: Path) -> None:
    """Publish what ``write_all`` wrote under the public names and branches."""
    for (name, branch), place in BRANCHES.items():
        hub.publish("datasets", name, folder / place, branch=branch)


def write_glue(folder: Path, rows: int = ROWS, only: Sequence[str] = tuple(GLUE)) -> None:
    """Configurations in the README; test labels are hidden (-1)."""
    files, infos = {}, []
    for config in only:
        columns, names, splits = GLUE[config]
        features = Features(
            {
                **dict.fromkeys(columns, TEXT),
                "label": NUMBER if names is None else ClassLabel(names=names),
                "idx": Value("int32"),
            }
        )
        infos.append((config, features, dict.fromkeys(splits, rows)))
        for split in splits:
            labels = [row % (len(names) if names else 5) for row in range(rows)]
            if split.startswith("test"):
                labels = [-1] * rows
            texts = {
                column: [f"{split} {column} number {row}" for row in range(rows)]
                for column in columns
            }
            file = f"{config}/{split}-00000-of-00001.parquet"
            write(folder, file, features, {**texts, "label": labels})
        files[config] = {split: f"{config}/{split}-*" for split in splits}
    write_readme(folder, files, infos)


def write_converted(folder: Path, config: str, content: tuple[Features, dict[str, Any]]) -> None:
    """A script on the main branch; on the converted branch no README, and a folder a split."""
    script = folder / "main"
    script.mkdir(parents=True)
    (script / f"{config}.py").write_text("raise SystemExit('a dataset script ran')\n")
    (script / "README.md").write_text(f"---\npretty_name: {config}\n---\n# {config}\n")
    converted = folder / "converted"
    for split in ("train", "validation", "test"):
        write(converted, f"{config}/{split}/0000.parquet", *content)
    (converted / ".gitattributes").write_text("*.parquet filter=lfs diff=lfs merge=lfs -text\n")


def conll2003() -> tuple[Features, dict[str, Any]]:
    features = Features(
        {
            "tokens": List(TEXT),
            "pos_tags": List(ClassLabel(names=POS)),
            "chunk_tags": List(ClassLabel(names=CHUNK)),
            "ner_tags": List(ClassLabel(names=NER)),
        }
    )
    tags = [[0, 0, 5, 0, 0, 0], [0] * 4, [0] * 2] * (ROWS // 3)
    pos = [
        [(word + row) % len(POS) for word in range(len(words))] for row, words in enumerate(WORDS)
    ]
    return features, {
        "tokens": WORDS,
        "pos_tags": pos,
        "chunk_tags": [[0] * len(row) for row in WORDS],
        "ner_tags": tags,
    }


def wnut_17() -> tuple[Features, dict[str, Any]]:
    features = Features({"tokens": List(TEXT), "ner_tags": List(ClassLabel(names=WNUT))})
    return features, {
        "tokens": WORDS,
        "ner_tags": [[0, 0, 7, 0, 0, 0], [0] * 4, [0] * 2] * (ROWS // 3),
    }


def write_wikitext(folder: Path) -> None:
    """Training text in two files; every other row is blank."""
    lines = ["", " = Heading = \n", "", " Some text of the article , as Wikipedia has it . \n"] * (
        ROWS // 4
    )
    features, files, infos = Features({"text": TEXT}), {}, []
    configs = {"wikitext-103-raw-v1": 2, "wikitext-103-v1": 2, "wikitext-2-raw-v1": 1}
    for config, parts in configs.items():
        for split, count in (("test", 1), ("train", parts), ("validation", 1)):
            for part in range(count):
                file = f"{config}/{split}-{part:05d}-of-{count:05d}.parquet"
                write(folder, file, features, {"text": lines})
        files[config] = {split: f"{config}/{split}-*" for split in SPLITS}
        infos.append((config, features, {"train": ROWS * parts, "validation": ROWS}))
    write_readme(folder, files, infos)


def write_universal_dependencies(folder: Path) -> None:
    """One configuration a treebank, below ``parquet``, under the release's number."""
    features = Features(
        {"sent_id": TEXT, "tokens": List(TEXT), "upos": List(ClassLabel(names=UPOS))}
    )
    upos = [
        [(word + row) % len(UPOS) for word in range(len(words))] for row, words in enumerate(WORDS)
    ]
    content = {"sent_id": [str(row) for row in range(ROWS)], "tokens": WORDS, "upos": upos}
    files = {}
    for treebank in ("en_ewt", "en_gum", "fr_gsd"):
        files[treebank] = {
            split: f"parquet/{treebank}/{split}.parquet" for split in ("train", "dev", "test")
        }
        for file in files[treebank].values():
            write(folder, file, features, content)
    write_readme(folder, files, [])


def write(
    folder: Path, file: str, features: Features, content: Mapping[str, Sequence[Any]]
) -> None:
    """A Parquet file with the class names in its metadata, as the ``datasets`` library
    writes them.
    """
    count = len(next(iter(content.values())))
    missing = {name: list(range(count)) for name in features if name not in content}
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_dict({**content, **missing}, features=features).to_parquet(path)


def write_readme(
    folder: Path,
    files: Mapping[str, Mapping[str, str]],
    infos: Sequence[tuple[str, Features, Mapping[str, int]]],
) -> None:
    """The card, with its configurations as the hub's own cards have them."""
    document = {
        "language": ["en"],
        "configs": [
            {
                "config_name": config,
                "data_files": [{"split": name, "path": path} for name, path in splits.items()],
            }
            for config, splits in files.items()
        ],
        "dataset_info": [
            {
                "config_name": config,
                "features": features._to_yaml_list(),
                "splits": [
                    {"name": name, "num_bytes": 1, "num_examples": count}
                    for name, count in counts.items()
                ],
            }
            for config, features, counts in infos
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(
        f"---\n{yaml.safe_dump(document, sort_keys=False)}---\n# Card\n"
    )
