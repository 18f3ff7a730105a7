"""What is said once for all calls:

- ``encoder`` is what ``load_encoder`` gives; ``replaced`` and ``features`` nest, and other calls
  refuse an encoder inside a block of ``replaced``.
- ``heads`` are (layer, head) pairs, both from 0; or ``{layer: [heads]}``; or a mask [layers, heads]
  that is 0 where a head is replaced and 1 elsewhere.
- ``texts`` are strings, pairs of strings, or a table with a column of strings, which ``text`` names
  (``text_pair`` that of second texts). A table is a data set, a data frame, a ``pyarrow.Table``, or
  a mapping of columns. What does not fit the slots is cut.
- ``constants`` are what ``average`` or ``constants`` gave, the name of a control, or floating-point
  matrices of one's own: a tensor or an array [layers, heads, slots, slots].
- ``data`` with a ``task`` is the name of a known task (``papa tasks``), or tables under ``train``
  and ``validation``. Of a model that you hold, it is batches, the keyword arguments of the model,
  or one of them; or, with its ``tokenizer``, texts, whose table has a column ``text`` and which are
  truncated, with a warning that counts them, at the model's positions or its tokenizer's limit.
- A frame of head scores has a row for every head: layer, head, method, score (the smallest is of
  the head that is missed least), and its 95 % interval, low and high; nan where nothing is known.
- ``progress=False`` hides bars.

Every mistake that a user can mend is a ``PapaError`` of one sentence, raised before anything is
computed where it can be known: a ``DataError`` of texts and rows, an ``EncoderError`` of a model or
its tokenizer, an ``ArtifactError`` of matrices and stores, a ``NumbersError`` of NaN and infinity,
a ``SpecError`` of any other value.

The examples share an encoder, and a model that somebody holds:

    >>> import papa, torch, transformers
    >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32, device="cpu")
    >>> config = transformers.GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2)
    >>> model = transformers.GPT2LMHeadModel(config).eval()
    >>> batches = [{"input_ids": torch.tensor([[3, 5, 7, 5], [2, 2, 4, 9]])}]
"""
