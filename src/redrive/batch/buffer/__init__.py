"""The send buffer: items of many senders in few batches. `waiting` decides, `pump` runs it, `delivery` sends a batch."""
