"""What cites a study: the paper of the method, and this software with what identifies the study."""

from __future__ import annotations

from importlib.metadata import version

PAPER = """\
@inproceedings{hassid-etal-2022-much,
  title = {How Much Does Attention Actually Attend? {Q}uestioning the Importance of Attention in
           Pretrained Transformers},
  author = {Hassid, Michael and Peng, Hao and Rotem, Daniel and Kasai, Jungo and Montero, Ivan and
            Smith, Noah A. and Schwartz, Roy},
  booktitle = {Findings of the Association for Computational Linguistics: EMNLP 2022},
  month = dec,
  year = {2022},
}
"""
YEAR = 2026
"""Of this version's release, as CITATION.cff has it."""


def citation(study: str, digest: str) -> str:
    """BibTeX; ``digest`` is the SHA-256 of the study's ``manifest.json``."""
    return f"""{PAPER}
@software{{papa-{study},
  title = {{{{PAPA}}, study {study.replace("_", chr(92) + "_")}}},
  author = {{{{The PAPA maintainers}}}},
  version = {{{version("papa-attention")}}},
  year = {{{YEAR}}},
  note = {{SHA-256 of manifest.json: {digest}}},
}}
"""
