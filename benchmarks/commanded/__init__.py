"""What durable commands cost: the whole worker, beside other libraries."""
