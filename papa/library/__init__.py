"""The public surface of ``papa``: thin over the rooms that the method lives in.

What is shared by its calls: an ``encoder`` is what ``load_encoder`` gives; heads are (layer, head),
both from 0; ``progress=False`` hides bars; every mistake that a user can mend is a ``PapaError`` of
one sentence, raised before anything is computed where it can be known.
"""
