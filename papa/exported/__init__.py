"""An encoder with constant heads as an ordinary model of ``transformers``."""
