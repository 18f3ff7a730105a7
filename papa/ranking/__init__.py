"""How heads are scored and ordered: the methods, their orders, and how certain both are."""
