"""The citation of a study: the method's paper, and this software with the study's digest."""

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
"""The year of this version's release, as in CITATION.cff."""


def bibtex(study: str, digest: str) -> str:
    """Return BibTeX; ``digest`` is the SHA-256 of the study's ``manifest.json``."""
    return f"""{PAPER}
@software{{papa-{study},
  title = {{{{PAPA}}, study {study.replace("_", chr(92) + "_")}}},
  author = {{{{The PAPA maintainers}}}},
  version = {{{version("papa-attention")}}},
  year = {{{YEAR}}},
  note = {{SHA-256 of manifest.json: {digest}}},
}}
"""
