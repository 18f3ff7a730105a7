"""The engine: a step and its key, the stages, a study's steps, and the store of artifacts."""
