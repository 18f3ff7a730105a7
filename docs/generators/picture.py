"""The README's picture, of the demo's scores, its heads by λ and their average attention: ``make
picture`` runs the demo and draws it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import vl_convert

from papa.reporting.figures import FILE, FORMATS, Figure, datasets, score_panels
from papa.reporting.heads import chosen_figure, head_panels
from papa.storage.store import Store
from papa.tasks.manifest import FinishedStudy, open_study

PICTURE = Path(__file__).parents[1] / "report.png"
_APART = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")}
"""Each figure has colours of its own."""


def picture(study: FinishedStudy) -> str:
    """The figures of a study with one task as one SVG: scores beside heads, above matrices."""
    findings = study.findings()
    (scores,) = score_panels(findings.summary)
    (heads,) = head_panels(findings.heads)
    matrices = chosen_figure(findings.averages[0])
    above = {"hconcat": [_part(scores), _part(heads)], "spacing": 60, "resolve": _APART}
    whole = {
        "$schema": scores.specification["$schema"],
        "datasets": datasets([scores, heads, matrices]),
        "vconcat": [above, _part(matrices)],
        "spacing": 30,
        "resolve": _APART,
    }
    return vl_convert.vegalite_to_svg(whole, config=FILE)


def _part(figure: Figure) -> dict[str, Any]:
    """A figure's specification as a part of another's."""
    part = {key: value for key, value in figure.specification.items() if key != "$schema"}
    if part.get("width") == "container":
        del part["autosize"]
        part |= {"width": 340, "title": {"text": figure.title, "anchor": "middle"}}
    return part


if __name__ == "__main__":
    PICTURE.write_bytes(bytes(FORMATS[".png"](picture(open_study(Store("papa-store"), "demo")))))
