"""The send buffer: collects items of many callers into few batches.

`queue` decides which items form a batch, `flusher` runs a task for each batch, and `delivery` sends
a batch.
"""
