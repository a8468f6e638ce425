"""A shop in Flask. A request with an Idempotency-Key places one order, with one job for its receipt."""
