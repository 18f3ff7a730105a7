"""An encoder with chosen heads constant, as a folder that loads without the study and runs faster.

``export_encoder`` writes it, ``load_exported`` (also ``papa.load_exported``) loads it.
"""

from papa.exporting.loading import load_exported
from papa.exporting.model import ExportedEncoder
from papa.exporting.placement import InputLayout
from papa.exporting.sentences import SentenceModule, load_sentence_transformer
from papa.exporting.writing import export_encoder, save_exported

__all__ = [
    "ExportedEncoder",
    "InputLayout",
    "SentenceModule",
    "export_encoder",
    "load_exported",
    "load_sentence_transformer",
    "save_exported",
]
