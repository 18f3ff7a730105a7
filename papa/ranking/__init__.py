"""Head orders: which heads become constant first."""

from papa.ranking.orders import HEAD_ORDERS, Head, HeadOrder, drawn_from, head_order, needs_lambda

__all__ = ["HEAD_ORDERS", "Head", "HeadOrder", "drawn_from", "head_order", "needs_lambda"]
