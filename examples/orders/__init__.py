"""Orders: charge, ship, wait for a signal, notify. Each effect happens once, whatever is killed."""
