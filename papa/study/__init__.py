"""The engine: a step and its key, the stages, and a study's steps."""
