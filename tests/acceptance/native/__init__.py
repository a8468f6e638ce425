"""Each mapping, against a server that counts requests and measures the waits between them."""
