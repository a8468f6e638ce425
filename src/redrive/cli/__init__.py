"""The `redrive` command. It needs the extra `cli`."""

import sys


def main() -> None:
    """Run the command line. Without the extra, say what to install and exit with 2."""
    try:
        from .root import run  # noqa: PLC0415  # the extra may be missing
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        print('The redrive command needs its extra: pip install "redrive[cli]"', file=sys.stderr)
        sys.exit(2)
    run()
