"""The engine: a step and its key, the stages, the steps of a study, and the store that their
artifacts lie in.
"""
