"""What an exported folder holds, and that nothing else is taken for one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import papa
from papa.errors import ArtifactError
from papa.exporting import export_encoder
from papa.exporting.document import FORMAT
from papa.exporting.placement import reproducible_rows
from papa.storage.artifacts import sha256_of_file
from papa.storage.metadata import signed
from tests.exporting.conftest import FIRST, SLOTS, Case
from tests.exporting.test_outputs import of_kind


def refused(folder: Path, sentence: str) -> None:
    with pytest.raises(ArtifactError, match=sentence):
        papa.load_exported(folder)


@pytest.mark.parametrize(
    ("kind", "projections", "said"),
    [
        ("average", ("query", "key"), "compute no queries, keys or softmax"),
        ("mean_output_by_slot", ("query", "key", "value"), "need no queries, keys or values"),
    ],
)
def test_weights_lack_the_rows_of_constant_heads(
    small: Case, tmp_path: Path, kind: str, projections: tuple[str, ...], said: str
) -> None:
    case = small if kind == "average" else of_kind(small, kind)
    case.export(tmp_path / "export")
    source, written = Path(case.reference.folder), tmp_path / "export"
    original, kept = (load_file(folder / "model.safetensors") for folder in (source, written))
    assert kept.keys() == original.keys()
    for layer in range(case.reference.layers):
        own = [h for h in range(case.reference.heads) if (layer, h) not in case.some_heads()]
        for projection in projections:
            for part in ("weight", "bias"):
                name = f"encoder.layer.{layer}.attention.self.{projection}.{part}"
                by_head = original[name].unflatten(0, (case.reference.heads, -1))
                assert torch.equal(kept.pop(name), by_head[own].flatten(0, 1)), name
    assert all(torch.equal(weight, original[name]) for name, weight in kept.items())
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (written, source)]
    assert sizes[0] < sizes[1]
    card = (written / "README.md").read_text()
    assert f"({kind}).\nThose heads {said};" in card
    assert ("unseen_share" in card) == (kind == "average")


def test_constants_are_those_of_constant_heads_alone(small: Case, written: Path) -> None:
    matrices = load_file(written / "constants.safetensors")["matrices"]
    assert matrices.dtype == torch.float32
    assert matrices.shape == (len(small.some_heads()), SLOTS, SLOTS)
    for matrix, head in zip(matrices, small.some_heads(), strict=True):
        assert torch.equal(matrix, small.constants.matrices[head])


def test_the_document_names_every_file_and_the_source(small: Case, written: Path) -> None:
    document = json.loads((written / "papa.json").read_text())
    present = {path.name for path in written.iterdir()}
    assert set(document["files"]) == present - {"papa.json"}
    assert {
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "constants.safetensors",
        "README.md",
    } <= present
    assert all(
        sha256_of_file(written / name) == digest for name, digest in document["files"].items()
    )
    assert document["encoder"]["digest"] == small.reference.digest
    assert [tuple(head) for head in document["heads"]] == small.some_heads()
    assert document["size"]["weights"] == (written / "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    "name", ["model.safetensors", "constants.safetensors", "encoder_config.json", "tokenizer.json"]
)
def test_a_damaged_or_missing_file_is_named(written: Path, name: str) -> None:
    content = bytearray((written / name).read_bytes())
    content[-3] ^= 1
    (written / name).write_bytes(bytes(content))
    refused(written, f"{name} is damaged")
    (written / name).unlink()
    refused(written, f"{name} is missing")


def _change(folder: Path, **fields: object) -> None:
    document = json.loads((folder / "papa.json").read_text())
    document["files"] |= {name: sha256_of_file(folder / name) for name in document["files"]}
    (folder / "papa.json").write_text(json.dumps(signed(document | fields)))


def test_a_document_of_other_bits_is_refused(written: Path) -> None:
    """A head's number, say: its matrix would go to another head."""
    document = json.loads((written / "papa.json").read_text())
    document["heads"][0][1] ^= 1
    (written / "papa.json").write_text(json.dumps(document))
    refused(written, "its digest is not that of what it says")


@pytest.mark.parametrize(
    ("field", "odd"),
    [
        ("files", {"README.md": {}}),
        ("files", {"../outside": "0" * 64}),
        ("files", {"a" * 300: "0" * 64}),
        ("files", {"a\0": "0" * 64}),
        ("size", {"weights": [1]}),
    ],
)
def test_a_document_of_odd_files_or_sizes_is_refused(
    written: Path, field: str, odd: dict[str, Any]
) -> None:
    document = json.loads((written / "papa.json").read_text())
    _change(written, **{field: document[field] | odd})
    refused(written, r"a field is missing or malformed")


def test_parts_that_do_not_fit_are_said(small: Case, written: Path) -> None:
    heads = [list(head) for head in small.some_heads()]
    _change(written, heads=heads[:-1])
    refused(
        written, r"its parts do not fit each other \(.* expected \(.*: export the encoder again"
    )
    _change(written, heads=[*heads[:-1], [0, 99]])
    with pytest.raises(ArtifactError):
        papa.load_exported(written)
    _change(written, heads=heads, format=FORMAT + 1)
    refused(written, f"has format {FORMAT + 1}, this version")
    _change(written, format=FORMAT, layout={"slots": SLOTS})
    refused(written, "its parts do not fit each other")


def test_constants_of_another_length_are_said(small: Case, written: Path) -> None:
    tensors = load_file(written / "constants.safetensors")
    save_file(
        {**tensors, "matrices": tensors["matrices"][:, 1:, 1:].contiguous()},
        written / "constants.safetensors",
    )
    _change(written)
    refused(written, f"expected \\({SLOTS}, {SLOTS}\\)")


def test_a_folder_that_is_no_export_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file"):
        refused(place, "holds no exported encoder")
    (tmp_path / "papa.json").write_text("[")
    refused(tmp_path, "is damaged")


def test_a_folder_that_holds_something_is_left_alone(small: Case, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="is not empty"):
        small.export(tmp_path / "taken")
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "file"]


def test_an_empty_folder_is_filled(small: Case, tmp_path: Path) -> None:
    small.exported(tmp_path)


def test_what_cannot_be_exported_leaves_nothing(small: Case, tmp_path: Path) -> None:
    layout = replace(small.layout, slots=8)
    with pytest.raises(ArtifactError, match="do not fit each other"):
        export_encoder(small.reference, small.constants, [(0, 0)], layout, tmp_path / "export")
    assert not list(tmp_path.iterdir())


def test_an_export_that_differs_from_the_study_is_not_published(
    make_case: Callable[..., Case], tmp_path: Path
) -> None:
    follow, stay = make_case("electra", "pair"), make_case("electra", "pair", segment_ids="stay")
    with pytest.raises(ArtifactError, match="differs from the study's"):
        follow.export(tmp_path / "export", examples=stay.split)
    assert not list(tmp_path.iterdir())


def test_pairs_that_were_cut_are_not_compared_where_segments_stay(
    make_case: Callable[..., Case], tmp_path: Path
) -> None:
    """The corpus gives them the segments of the uncut pair, which no input of an exported encoder
    can have.
    """
    long = [*FIRST[:3], "verbs " * 40, FIRST[4]]
    case = make_case("electra", "pair", first=long, segment_ids="stay")
    assert reproducible_rows(case.split, case.layout).tolist() == [0, 1, 2, 4]
    follow = make_case("electra", "pair", first=long)
    assert reproducible_rows(follow.split, follow.layout).tolist() == [0, 1, 2, 3, 4]
    heads = case.some_heads()
    document = case.export(tmp_path / "export", heads, examples=case.split)
    assert document.speed


@pytest.mark.server
def test_importing_papa_stays_light() -> None:
    """As if torch were not installed."""
    code = (
        "import sys; sys.modules['torch'] = None; import papa; print('light'); papa.load_exported"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "light\n"
    assert "import of torch halted" in done.stderr, "negative control"
