"""Notebooks run when the site is built, and become pages with what they printed and drew: a hook of
mkdocs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from traitlets.config import Config

FOLDER = Path(__file__).parents[2] / "notebooks"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page, and its images, for each notebook."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        for name, content in pages(path).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def pages(path: Path) -> dict[str, str | bytes]:
    """Run a notebook, in a folder that is gone afterwards; its page and images by file name.

    Raises:
        CellExecutionError: a cell failed.
    """
    exporter = MarkdownExporter(config=Config(ExtractOutputPreprocessor={"enabled": True}))
    notebook = executed(path)
    for cell in notebook.cells:
        if "outputs" in cell:  # Bars and warnings are not what a page is read for.
            cell["outputs"] = [
                output for output in cell["outputs"] if output.get("name") != "stderr"
            ]
    text, resources = exporter.from_notebook_node(
        notebook, resources={"unique_key": path.stem, "output_files_dir": "."}
    )
    images = {Path(name).name: content for name, content in resources["outputs"].items()}
    return {f"{path.stem}.md": text, **images}


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    # `papa` is found as in an environment that is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with TemporaryDirectory() as folder:
        # Sockets in the folder: other accounts on this machine reach a port on loopback, too.
        sockets = Config(KernelManager={"transport": "ipc", "ip": str(Path(folder) / "kernel")})
        client = NotebookClient(
            notebook, timeout=None, resources={"metadata": {"path": folder}}, config=sockets
        )
        client.coalesce_streams = True
        client.execute(
            env={"PAPA_STORE": str(Path(folder) / "papa-store"), **os.environ, "PATH": path}
        )
    return notebook
