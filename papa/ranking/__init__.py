"""Head orders: which heads become constant first."""

from papa.ranking.orders import HEAD_ORDERS, HeadOrder, constant_count, differs_by_seed, head_order, needs_lambda

__all__ = ["HEAD_ORDERS", "HeadOrder", "constant_count", "differs_by_seed", "head_order", "needs_lambda"]
