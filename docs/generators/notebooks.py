"""Notebooks become pages with their stored outputs: a hook of mkdocs.

``python -m docs.generators.notebooks`` runs them and stores what they printed and drew.
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
    """Return the page and the images of a notebook by file name."""
    exporter = MarkdownExporter(config=Config(ExtractOutputPreprocessor={"enabled": True}))
    text, resources = exporter.from_notebook_node(
        nbformat.read(path, as_version=4),
        resources={"unique_key": path.stem, "output_files_dir": "."},
    )
    images = {Path(name).name: content for name, content in resources["outputs"].items()}
    return {f"{path.stem}.md": text, **images}


def executed(path: Path) -> nbformat.NotebookNode:
    """Run a notebook in a folder that is gone afterwards, and return it with its outputs.

    Raises:
        CellExecutionError: a cell failed.
    """
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
        # What the reader's own databases hold is not shown.
        folders = {
            "PAPA_STORE": str(Path(folder) / "papa-store"),
            "PREFECT_HOME": str(Path(folder) / "prefect"),
            "XDG_DATA_HOME": str(Path(folder) / "data"),
        }
        client.execute(env={**os.environ, **folders, "PATH": path})
    for cell in notebook.cells:
        # When each cell ran.
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            # Progress bars and warnings are not what a page is read for.
            cell["outputs"] = [
                output for output in cell["outputs"] if output.get("name") != "stderr"
            ]
    return notebook


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(executed(path), path)
