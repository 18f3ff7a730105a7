"""Head orders: which heads become constant first."""

from papa.ranking.orders import constant_count, differs_by_seed, head_order, needs_lambda

__all__ = ["constant_count", "differs_by_seed", "head_order", "needs_lambda"]
