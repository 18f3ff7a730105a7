"""What the hub refuses, and what is there when it is gone: one sentence, or the same encoder."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants

from papa.errors import EncoderError, HubUnreachableError
from papa.flows.check import check_study
from papa.spec import StudySpec
from papa.spec.file import resolve_study
from papa.storage.store import Store
from papa.worker import encoder_here
from tests.hub.conftest import Folder, refused, resolved
from tests.hub.datasets import ROWS
from tests.hub.server import TOKEN, Handler, Hub

PICKLED = "google/electra-base-discriminator"
BERT = "google-bert/bert-base-uncased"
DEBERTA = "microsoft/deberta-base"
TASKS = ["cola", "sst2", "mrpc", "mnli", "ner", "pos", "mlm"]


def test_unknown_names_and_revisions(on_hub: Hub, encoder_folder: Folder) -> None:
    on_hub.publish("models", BERT, encoder_folder(BERT))
    assert f"{on_hub.address}/google-bert/bret" in refused("google-bert/bret")
    assert refused("my encoders/at home/bert")
    assert "v9" in refused(BERT, revision="v9")
    assert refused(BERT, revision="0" * 40)
    assert not on_hub.fetched(BERT)


def test_private_and_gated_ones_need_a_token(
    on_hub: Hub, encoder_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for access in ("private", "gated"):
        on_hub.publish("models", f"lab/{access}", encoder_folder(PICKLED), access=access)
    licence = f"{on_hub.address}/lab/gated"
    assert "HF_TOKEN" in refused("lab/private")
    assert licence in refused("lab/gated")
    monkeypatch.setenv("HF_TOKEN", "hf_ofAnother")
    assert "hf auth login" in refused("lab/private")
    on_hub.kept_out |= {"lab/private", "lab/gated"}
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "account" in refused("lab/private")
    assert licence in refused("lab/gated")
    on_hub.kept_out.clear()
    assert resolved("lab/private").layers == resolved("lab/gated").layers == 2
    assert {request.token for request in on_hub.requests if request.to_storage} == {None}


def test_branches_are_commits_and_move(on_hub: Hub, encoder_folder: Folder) -> None:
    first = on_hub.publish("models", BERT, encoder_folder(BERT))
    on_hub.publish("models", BERT, encoder_folder(BERT), branch="refs/pr/1")
    old = resolved(BERT)
    assert (old.revision, old) == (first, resolved(BERT, "refs/pr/1"))
    second = on_hub.publish("models", BERT, encoder_folder(BERT, 1))
    new = resolved(BERT)
    assert new.revision == second
    assert new.digest != old.digest
    assert resolved(BERT, first) == old


@pytest.mark.parametrize("name", [PICKLED, BERT])
def test_what_was_fetched_is_there_when_the_hub_is_gone(
    name: str, on_hub: Hub, encoder_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_hub.publish("models", "lab/one", encoder_folder(name))
    first = resolved("lab/one")
    on_hub.stop()
    assert resolved("lab/one") == first
    message = refused("lab/other", HubUnreachableError)
    assert f"({on_hub.address}, from HF_ENDPOINT: no answer)" in message
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert resolved("lab/one") == first
    assert "(HF_HUB_OFFLINE is set)" in refused("lab/other", HubUnreachableError)
    if name == BERT:  # Half an encoder is not taken for all of it.
        weights = Path(first.folder) / "model.safetensors"
        weights.resolve().unlink()
        weights.unlink()
        assert "not on this machine" in refused("lab/one", HubUnreachableError)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        on_hub.start()
        assert resolved("lab/one") == first


def test_a_workers_machine_fetches_for_itself(
    on_hub: Hub, encoder_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_hub.publish("models", "lab/one", encoder_folder(PICKLED))
    here = resolved("lab/one")
    on_hub.publish("models", "lab/one", encoder_folder(BERT, 1))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "node" / "hub"))
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "node" / "cache"))
    there = encoder_here(here)
    assert there == replace(here, folder=there.folder)
    assert Path(there.folder).is_relative_to(tmp_path / "node")
    shutil.rmtree(tmp_path / "node")
    on_hub.stop()
    with pytest.raises(EncoderError, match=r"lab/one"):
        encoder_here(here)


@pytest.mark.parametrize(
    ("architecture", "problem"), [("falcon", "'falcon'"), ("llama", "tokenizer")]
)
def test_misfits_not_fetched(architecture: str, problem: str, on_hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": architecture}))
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    on_hub.publish("models", "lab/decoder", tmp_path)
    assert problem in refused("lab/decoder")
    assert on_hub.fetched("lab/decoder") == {"config.json"}


def test_an_answer_that_is_no_hubs_is_said(on_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def login(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"<html>Welcome to our network</html>")

    for method in ("do_GET", "do_HEAD"):
        monkeypatch.setattr(Handler, method, login)
    assert "is no hub" in refused("lab/one", HubUnreachableError)


@pytest.fixture
def all_public(public: Hub, encoder_folder: Folder) -> Hub:
    for name in (BERT, DEBERTA):
        public.publish("models", name, encoder_folder(name))
    return public


def study() -> StudySpec:
    document = {"name": "study", "encoders": [BERT, DEBERTA], "execution": {"workers": 1}}
    document["tasks"] = [{"name": name, "slots": 32} for name in TASKS]
    return resolve_study(document, folder=Path(), origin="test")


def test_the_papers_tasks_are_ready(all_public: Hub, tmp_path: Path) -> None:
    checked = check_study(study(), Store(tmp_path), purpose="check")
    previews = {task.name: look for task, look in checked.previews.items()}
    assert previews.keys() == {*TASKS}
    assert previews["mnli"].label_names == ("entailment", "neutral", "contradiction")
    assert (previews["ner"].rows, previews["mlm"].rows) == ((ROWS, ROWS), (ROWS, ROWS // 2))
    assert not any(file.endswith((".safetensors", ".bin")) for file in all_public.fetched())
    for name, note in zip((BERT, DEBERTA), checked.unchecked, strict=False):
        assert f"({name}): whether its weights fit" in note
    inputs = checked.inputs
    with_revisions = (*inputs.study.encoders, *(task.source for task in inputs.study.tasks))
    assert all(re.fullmatch("[0-9a-f]{40}", entry.revision) for entry in with_revisions)
    assert {encoder.layers for encoder in inputs.encoders} == {2}
