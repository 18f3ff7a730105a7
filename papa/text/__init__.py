"""Sources of text, the task registry, labels, the layout in slots, corpora, micro-batches."""
