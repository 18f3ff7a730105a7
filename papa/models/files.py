"""The files that make an encoder, here and on the hub; and checks of them that passed before, so
that a study that was looked at before imports neither torch nor transformers.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from papa.errors import EncoderError
from papa.files import cache_folder, sha256_of_file, sha256_of_json, write_atomically
from papa.hub_errors import download_bar, hub_errors

CONFIGURATION = "config.json"
MODULES, SETTINGS = "modules.json", "config_sentence_transformers.json"
READER, _POOLING = "sentence_bert_config.json", "*_Pooling/config.json"
"""Of sentence-transformers: modules in their order, prompts, how text is read and tokens pooled."""
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spm.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
DESCRIBING = (CONFIGURATION, MODULES, SETTINGS, READER, _POOLING, *TOKENIZER_FILES)
"""The small files, without weights."""
SAFETENSORS, _PICKLED = "model.safetensors", "pytorch_model.bin"
_SHARDS = {SAFETENSORS: "model-*-of-*.safetensors", _PICKLED: "pytorch_model-*-of-*.bin"}
"""What holds an encoder's weights, the first that is there is taken, and its shards' names; files
with other names are adapters, other precisions or other frameworks' weights."""


def read_configuration_file(folder: Path, what: str) -> tuple[dict[str, Any], str]:
    """What an encoder's config.json holds, of which nothing is checked, and its SHA-256."""
    path = folder / CONFIGURATION
    try:
        data = path.read_bytes()
        document = json.loads(data)
    except OSError as error:
        raise EncoderError(
            f"{what}: {path} cannot be read ({error.strerror}): give a folder with an encoder"
        ) from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise EncoderError(f"{path} is damaged: it holds no mapping in JSON")
    return document, hashlib.sha256(data).hexdigest()


def embeds_by(folder: Path) -> str | None:
    """What else than the mean over a text's tokens makes the embeddings of the encoder in
    ``folder``, by the files of sentence-transformers, in words; None where nothing does.
    """

    def read(name: str) -> Any:
        return json.loads((folder / name).read_bytes()) if (folder / name).is_file() else {}

    try:
        for module in read(MODULES):
            kind = module["type"].rpartition(".")[2]
            if kind == "Pooling":
                pooling = read(f"{module['path']}/config.json")
                modes = pooling.get("pooling_mode") or [
                    name.removeprefix("pooling_mode_").removesuffix("_tokens")
                    for name, value in pooling.items()
                    if name.startswith("pooling_mode_") and value is True
                ]
                if modes not in ("mean", ["mean"]):
                    modes = modes if isinstance(modes, str) else ", ".join(modes)
                    return f"it pools its embeddings by {modes} ({MODULES})"
            elif kind not in ("Transformer", "Normalize"):
                return f"its embeddings pass a module {kind} ({MODULES})"
        if read(READER).get("do_lower_case"):
            return f"it lowers its texts first (do_lower_case in {READER})"
        settings = read(SETTINGS)
        if prompt := settings.get("prompts", {}).get(settings.get("default_prompt_name")):
            return f"it puts {prompt!r} before each text (default_prompt_name in {SETTINGS})"
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        return f"how it embeds is unknown, as {folder} has a damaged file ({error!r})"
    return None


def weight_files(folder: Path) -> list[Path]:
    """The files of the weights in ``folder``: one, or its shards; none where not all are there."""
    for name in _SHARDS:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return [folder / name]
        if index.is_file():
            try:
                named = json.loads(index.read_bytes())["weight_map"].values()
                # A name from outside does not lead out of the folder.
                shards = {Path(one).name for one in named}
            except (ValueError, KeyError, AttributeError, TypeError):
                return []
            paths = [folder / shard for shard in sorted(shards)]
            return paths if all(path.is_file() for path in paths) else []
    return []


def no_weights(what: str, where: str, files: list[str]) -> EncoderError:
    """The error that says which files are there instead."""
    found = ", ".join(sorted(name for name in files if name[0] != ".")) or "nothing"
    return EncoderError(
        f"{what} has no {SAFETENSORS} and no {_PICKLED}, whole or in all its shards, in {where} "
        f"(found {found}): use a revision that has one of them"
    )


def encoder_digest(weights: Mapping[str, str], configuration: str) -> str:
    """SHA-256 over the digests of an encoder's weights, by file, and of its configuration."""
    return sha256_of_json({"weights": weights, "config": configuration})


def tokenizer_digest(folder: Path) -> str:
    """SHA-256 over the files of the tokenizer in ``folder``."""
    return sha256_of_json({path.name: sha256_of_file(path) for path in tokenizer_files(folder)})


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of the tokenizer in ``folder``."""
    return [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]


def weight_patterns(name: str, folder: Path, what: str) -> list[str]:
    """Patterns of the files that hold an encoder's weights, as the hub listed its files."""
    from huggingface_hub import constants, errors, get_cached_repo_tree

    try:
        files = [file.path for file in get_cached_repo_tree(name, revision=folder.name)]
    except errors.CachedRepoTreeNotFoundError:  # Fetched long ago, by a library that kept no list.
        files = [path.name for path in folder.iterdir()]
    for whole, shards in _SHARDS.items():
        if whole in files:
            return [whole]
        if (index := f"{whole}.index.json") in files:
            return [index, shards]
    raise no_weights(what, f"{constants.ENDPOINT}/{name}", files)


def fetched(name: str, revision: str | None, what: str, patterns: Sequence[str]) -> Path:
    """The folder, named by the commit, where the files of these names now are."""
    from huggingface_hub import HfApi, constants, errors, get_cached_repo_tree, snapshot_download

    wanted: dict[str, Any] = {"revision": revision, "allow_patterns": list(patterns)}
    with hub_errors(what, f"{constants.ENDPOINT}/{name}", revision, EncoderError):
        if revision and re.fullmatch(r"[0-9a-f]{40}", revision):
            with suppress(errors.CachedRepoTreeNotFoundError, errors.LocalEntryNotFoundError):
                get_cached_repo_tree(name, revision=revision)
                return Path(snapshot_download(name, **wanted, local_files_only=True))
            try:
                # Asked once: downloads would try again for half a minute before they say that the
                # hub is gone.
                HfApi().model_info(name, revision=revision, timeout=10, expand=["sha"])
            except errors.HfHubHTTPError:
                raise
            except (errors.HTTPError, errors.OfflineModeIsEnabled):
                wanted["local_files_only"] = True
        return Path(snapshot_download(name, **wanted, tqdm_class=download_bar()))


Finding = TypeVar("Finding")
_one_at_a_time = threading.Lock()
"""Checks import large libraries: two threads at once find modules half made."""


def remembered(what: str, content: str, check: Callable[[], Finding]) -> Finding:
    """What ``check`` found before, a JSON value, else what it finds now. The key is what it looks
    at, by the digest ``content``, the libraries that look, and PAPA's own code.
    """
    key = sha256_of_json({"check": what, "content": content, "made by": _makers()})
    kept = cache_folder() / "checked" / f"{key}.json"
    with suppress(OSError, ValueError):
        found: Finding = json.loads(kept.read_bytes())
        return found
    with _one_at_a_time:
        found = check()
    # A check that raises leaves nothing: what failed is looked at again.
    with suppress(OSError):
        write_atomically(kept, json.dumps(found))
    return found


@cache
def _makers() -> dict[str, str]:
    root, made = Path(__file__).parents[1], ("torch", "transformers", "tokenizers")
    # What decides what passes and how text is laid out.
    files = sorted([*root.glob("models/*.py"), *root.glob("text/*.py")])
    code = sha256_of_json([sha256_of_file(path) for path in files])
    return {**{name: version(name) for name in made}, "code": code}
