"""The files that make an encoder, here and on the hub; and what checks of them found before."""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from papa.errors import EncoderError
from papa.files import (
    cache_folder,
    refuse_pointer,
    sha256_of_file,
    sha256_of_json,
    write_atomically,
)

Json: TypeAlias = dict[str, Any]
"""What a file in JSON holds, of which nothing is checked."""
Checked = TypeVar("Checked")
CONFIGURATION = "config.json"
MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
READER = "sentence_bert_config.json"
_POOLING = "*_Pooling/config.json"
"""Of sentence-transformers: modules in their order, prompts, how text is read and tokens pooled."""
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "spm.model", "sentencepiece.bpe.model"),
    *("spiece.model", "tokenizer.model"),
)
EMBEDDING = (MODULES, SETTINGS, READER, _POOLING)
DESCRIBING = (CONFIGURATION, *EMBEDDING, *TOKENIZER_FILES)
"""The small files, without weights."""
SAFETENSORS = "model.safetensors"
_PICKLED = "pytorch_model.bin"


def read_configuration_file(folder: Path, subject: str) -> tuple[Json, str]:
    """Return what an encoder's config.json holds, of which nothing is checked, and its SHA-256."""
    path = folder / CONFIGURATION
    refuse_pointer(path, EncoderError)
    try:
        data = path.read_bytes()
        document = json.loads(data)
    except OSError as error:
        raise EncoderError(
            f"{subject}: {path} cannot be read ({error.strerror}): give a folder with an encoder"
        ) from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise EncoderError(f"{path} is damaged: it holds no mapping in JSON")
    return document, hashlib.sha256(data).hexdigest()


def embeds_by(folder: Path) -> str | None:
    """Return what else than the mean over tokens makes embeddings, by sentence-transformers'
    files.
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
        prompt = settings.get("prompts", {}).get(settings.get("default_prompt_name"))
        if prompt:
            return f"it puts {prompt!r} before each text (default_prompt_name in {SETTINGS})"
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        return f"how it embeds is unknown, as {folder} has a damaged file ({error!r})"
    return None


def weight_files(folder: Path) -> list[Path]:
    """Return the files of the weights in ``folder``; none where not all are there."""
    return [folder / name for name in _of_weights(path.name for path in folder.iterdir())]


def _of_weights(names: Iterable[str]) -> list[str]:
    """Select the files of an encoder's weights, one or all shards, safetensors before pickles."""
    present = sorted(names)
    for whole in (SAFETENSORS, _PICKLED):
        stem, ending = whole.split(".")
        shards = [name for name in present if re.fullmatch(rf"{stem}-\d+-of-\d+\.{ending}", name)]
        if whole in present:
            return [whole]
        if shards and all(name.endswith(f"-of-{len(shards):05d}.{ending}") for name in shards):
            return shards
    return []


def encoder_digest(weights: Mapping[str, str], configuration: str) -> str:
    """Return the SHA-256 over the digests of an encoder's weights, by file, and of its
    configuration.
    """
    return sha256_of_json({"weights": weights, "config": configuration})


def tokenizer_digest(folder: Path) -> str:
    """Return the SHA-256 over the files of the tokenizer in ``folder``."""
    return sha256_of_json({path.name: sha256_of_file(path) for path in tokenizer_files(folder)})


def tokenizer_files(folder: Path) -> list[Path]:
    return [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]


def published_weights(folder: Path, subject: str, name: str | None) -> list[str]:
    """Return the names of an encoder's files of weights, in ``folder`` or as the hub listed
    them.
    """
    where = str(folder)
    files = [path.name for path in folder.iterdir()]
    if name:
        from huggingface_hub import constants, errors, get_cached_repo_tree

        where = f"{constants.ENDPOINT}/{name}"
        # A library that fetched it long ago kept no list.
        with suppress(errors.CachedRepoTreeNotFoundError):
            files = [file.path for file in get_cached_repo_tree(name, revision=folder.name)]
    weights = _of_weights(files)
    if not weights:
        present = ", ".join(sorted(file for file in files if file[0] != ".")) or "nothing"
        raise EncoderError(
            f"{subject} has no {SAFETENSORS} and no {_PICKLED}, whole or in all its shards, in "
            f"{where} (found {present}): use a revision that has one of them"
        )
    return weights


_one_at_a_time = threading.Lock()
"""Checks import large libraries: two threads at once find modules half made."""


def checked_once(subject: str, content: str, check: Callable[[], Checked]) -> Checked:
    """Return the stored result of an earlier ``check``, a JSON value, else of a check now. It is
    stored by the digest of what is checked, the versions of libraries, and PAPA's own code that
    decides.
    """
    root = Path(__file__).parents[1]
    code = sorted([*root.glob("models/*.py"), *root.glob("text/*.py")])
    versions = [*map(version, ("torch", "transformers", "tokenizers")), *map(sha256_of_file, code)]
    path = cache_folder() / "checked" / f"{sha256_of_json([subject, content, versions])}.json"
    with suppress(OSError, ValueError):
        earlier: Checked = json.loads(path.read_bytes())
        return earlier
    with _one_at_a_time:
        result = check()
    # A check that raises leaves nothing: what failed is looked at again.
    with suppress(OSError):
        write_atomically(path, json.dumps(result))
    return result
