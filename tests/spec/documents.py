"""A task of a study file, as YAML describes it."""

TEXT_TASK: dict[str, object] = {
    "name": "mine",
    "kind": "text",
    "source": {"kind": "files", "train": "t.jsonl", "validation": "v.jsonl"},
    "columns": {"text": "a", "label": "b"},
    "metric": "accuracy",
    "slots": 16,
    "probe": {"learning_rate": 0.001, "batch_size": 2, "epochs": 1},
}
