"""Metrics, baselines, intervals over seeds and examples, comparisons of head orders, verdicts."""
