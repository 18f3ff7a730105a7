"""Head orders: which heads become constant first."""

from papa.ranking.orders import drawn_from, head_order, needs_lambda

__all__ = ["drawn_from", "head_order", "needs_lambda"]
