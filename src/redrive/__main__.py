"""`python -m redrive`: the command line, where the `redrive` script is not on the path."""

from .cli import main

main()
