"""An export is loaded where papa is imported, from safetensors alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

import papa


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


def test_nothing_foreign_of_a_folder_is_read(folder: Path) -> None:
    (folder / "evil.py").write_text("raise SystemExit('code of the folder was run')\n")
    document = json.loads((folder / "config.json").read_text())
    document["auto_map"] = dict.fromkeys(("AutoConfig", "AutoModel"), "evil.ConstantHeadsModel")
    (folder / "config.json").write_text(json.dumps(document))
    loaded = AutoModel.from_pretrained(folder)
    assert type(loaded).__name__ == "ConstantHeadsModel"
    path = folder / "model.safetensors"
    torch.save(loaded.state_dict(), folder / "pytorch_model.bin")
    path.unlink()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        AutoModel.from_pretrained(folder)


def test_an_export_that_lacks_a_tensor_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    missing = min(tensors)
    del tensors[missing]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(papa.PapaError, match=re.escape(missing)):
        AutoModel.from_pretrained(folder)
