"""Head orders: which heads become constant first."""

from papa.ranking.orders import constant_heads, head_order, needs_lambda

__all__ = ["constant_heads", "head_order", "needs_lambda"]
