"""A model's native head, the task head that it came with: its batches, outputs, losses and passes,
and scores of its heads. Studies and the library measure native heads by these modules alone.
"""
