"""Pages of the docs, run as scripts."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


def pasted(page: Path, text: str = "") -> dict[str, object]:
    """What a page's blocks of Python, or those of a part of it, define when run as one script."""
    blocks = re.findall(r"^```python\n(.*?)^```$", text or page.read_text(), re.M | re.S)
    namespace: dict[str, object] = {"__name__": "pasted"}
    exec(compile("\n".join(blocks), str(page), "exec"), namespace)
    return namespace
