"""The stages of a study, a function each."""
