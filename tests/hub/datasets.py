"""Dataset repositories with the files, formats and class names of the public ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from datasets import ClassLabel, Dataset, Features, List, Value

from tests.hub.server import Hub

TEXT = Value("string")
NUMBER = Value("float32")
SPLITS = ("train", "validation", "test")
PAIRED = ("sentence1", "sentence2")
ENTAILED = ["entailment", "not_entailment"]
OF_MNLI = ("train", "validation_matched", "validation_mismatched", "test_matched")
GLUE: Mapping[str, tuple[tuple[str, ...], list[str] | None, tuple[str, ...]]] = {
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
WNUT = ["O"] + [
    f"{mark}-{kind}"
    for kind in ("corporation", "creative-work", "group", "location", "person", "product")
    for mark in "BI"
]
UNIVERSAL = "NOUN PUNCT ADP NUM SYM SCONJ ADJ PART DET CCONJ PROPN PRON X _ ADV INTJ VERB AUX"
UPOS = UNIVERSAL.split()
ROWS = 12
SPLIT = [["Papers", "from", "Rome", "say", "so", "."], ["It", "is", "new", "."], ["Why", "?"]] * 4
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
    write_glue(folder / "glue")
    write_converted(folder / "conll2003", "conll2003", of_words(pos_tags=POS, ner_tags=NER))
    write_converted(folder / "wnut_17", "wnut_17", of_words(ner_tags=WNUT))
    write_wikitext(folder / "wikitext")
    write_universal_dependencies(folder / "ud")


def publish_all(hub: Hub, folder: Path) -> None:
    """Publish what ``write_all`` wrote under the public names and branches."""
    for (name, branch), dataset_folder in BRANCHES.items():
        hub.publish("datasets", name, folder / dataset_folder, branch=branch)


def write_glue(folder: Path, rows: int = ROWS, only: Sequence[str] = tuple(GLUE)) -> None:
    files = {}
    infos = {}
    for config in only:
        columns, names, splits = GLUE[config]
        label = NUMBER if names is None else ClassLabel(names=names)
        features = {**dict.fromkeys(columns, TEXT), "label": label, "idx": Value("int32")}
        infos[config] = Features(features)
        for split in splits:
            labels = [row % (len(names) if names else 5) for row in range(rows)]
            content: dict[str, object] = {
                name: [f"{split} {name} number {row}" for row in range(rows)] for name in columns
            }
            content["label"] = [-1] * rows if split.startswith("test") else labels
            write(folder, f"{config}/{split}-00000-of-00001.parquet", infos[config], content)
        files[config] = {split: f"{config}/{split}-*" for split in splits}
    write_readme(folder, files, infos)


def write_converted(folder: Path, config: str, content: tuple[Features, dict[str, object]]) -> None:
    """A script on the main branch; on the converted branch no README, and a folder a split."""
    script = folder / "main"
    script.mkdir(parents=True)
    (script / f"{config}.py").write_text("raise SystemExit('a dataset script ran')\n")
    (script / "README.md").write_text(f"---\npretty_name: {config}\n---\n# {config}\n")
    converted = folder / "converted"
    for split in ("train", "validation", "test"):
        write(converted, f"{config}/{split}/0000.parquet", *content)
    (converted / ".gitattributes").write_text("*.parquet filter=lfs diff=lfs merge=lfs -text\n")


def of_words(**names: Sequence[str]) -> tuple[Features, dict[str, object]]:
    """``SPLIT`` with columns of tags, over all classes; entities are those of Rome."""
    content: dict[str, object] = {"tokens": SPLIT}
    for column, classes in names.items():
        spread = [[index + row for index in range(len(words))] for row, words in enumerate(SPLIT)]
        content[column] = [[number % len(classes) for number in row] for row in spread]
    classes = names.get("ner_tags")
    if classes is not None:
        location = next(index for index, name in enumerate(classes) if "b-loc" in name.lower())
        content["ner_tags"] = [[location * (word == "Rome") for word in words] for words in SPLIT]
    tags = {column: List(ClassLabel(names=list(classes))) for column, classes in names.items()}
    return Features({"tokens": List(TEXT), **tags}), content


def write_wikitext(folder: Path) -> None:
    lines = ["", " = Heading = \n", "", " Some text of the article , as Wikipedia has it . \n"] * 3
    features = Features({"text": TEXT})
    files = {}
    for config, file_count in (("wikitext-103-raw-v1", 2), ("wikitext-2-raw-v1", 1)):
        for split, count in (("test", 1), ("train", file_count), ("validation", 1)):
            for file_index in range(count):
                file = f"{config}/{split}-{file_index:05d}-of-{count:05d}.parquet"
                write(folder, file, features, {"text": lines})
        files[config] = {split: f"{config}/{split}-*" for split in SPLITS}
    write_readme(folder, files, dict.fromkeys(files, features))


def write_universal_dependencies(folder: Path) -> None:
    """A configuration per treebank, its files below ``parquet/``."""
    files = {
        treebank: {name: f"parquet/{treebank}/{name}.parquet" for name in ("train", "dev", "test")}
        for treebank in ("en_ewt", "fr_gsd")
    }
    for file in (file for files_by_split in files.values() for file in files_by_split.values()):
        write(folder, file, *of_words(upos=UPOS))
    write_readme(folder, files, {})


def write(
    folder: Path, file: str, features: Features, content: Mapping[str, Sequence[object]]
) -> None:
    """A Parquet file with the class names in its metadata, as ``datasets`` writes them."""
    count = len(next(iter(content.values())))
    missing = {name: list(range(count)) for name in features if name not in content}
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_dict({**content, **missing}, features=features).to_parquet(path)


def write_readme(
    folder: Path, files: Mapping[str, Mapping[str, str]], features: Mapping[str, Features]
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
            {"config_name": config, "features": config_features._to_yaml_list()}
            for config, config_features in features.items()
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(
        f"---\n{yaml.safe_dump(document, sort_keys=False)}---\n# Card\n"
    )
