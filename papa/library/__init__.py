"""Terms that all calls share:

- ``encoder`` is an ``Encoder``, as ``load_encoder`` returns it; ``replaced`` and ``features`` nest,
  and other calls refuse an encoder inside a block of ``replaced``.
- An in-memory model is any model of transformers that you loaded. Its ``data`` are batches (keyword
  arguments of the model; one of them, or a list), or texts with its ``tokenizer``. Texts longer
  than the model or its tokenizer allows are truncated, with a warning that counts them.
- Texts are strings, pairs of strings, or a table with a column of strings: a data set, a data
  frame, a ``pyarrow.Table``, or a mapping of columns.
- ``heads`` are (layer, head) pairs, both from 0; or ``{layer: [heads]}``; or a mask [layers, heads]
  that is 0 where a head is replaced and 1 elsewhere.
- ``substitute`` is what takes attention's place: a name, or constant matrices from ``average``,
  ``constants`` or your own code [layers, heads, slots, slots].
- ``keep`` is the share of heads that stay input-dependent.
- Head scores are a frame with a row for every head: layer, head, method, score (the smallest become
  constant first), and its 95 % interval (low, high), NaN where nothing is known.

Every mistake that a user can correct is a ``PapaError`` of one sentence, raised before anything is
computed where it can be known. ``papa.errors`` has its kinds: a ``DataError`` of texts and rows, an
``EncoderError`` of a model or its tokenizer, an ``ArtifactError`` of matrices and stores, a
``NumbersError`` of NaN and infinity, a ``SpecError`` of any other value.

The examples share an encoder and an in-memory model:

    >>> import papa, torch, transformers
    >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32, device="cpu")
    >>> config = transformers.GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2)
    >>> model = transformers.GPT2LMHeadModel(config).eval()
    >>> batches = [{"input_ids": torch.tensor([[3, 5, 7, 5], [2, 2, 4, 9]])}]
"""
