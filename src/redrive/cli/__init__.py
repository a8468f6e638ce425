"""The `redrive` command. Its tools come with the extra `cli`; without them it says what to install."""

import sys


def main() -> None:
    """Run the command line; exit status 2 where the extra is missing."""
    try:
        from redrive.cli.root import run  # noqa: PLC0415  # the extra may be missing
    except ModuleNotFoundError as missing:
        if missing.name not in {"typer", "rich"}:
            raise
        print('The redrive command needs its extra: pip install "redrive[cli]"', file=sys.stderr)
        sys.exit(2)
    run()
