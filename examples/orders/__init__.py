"""An order is charged and shipped. Each effect happens once, even if the worker is killed."""
