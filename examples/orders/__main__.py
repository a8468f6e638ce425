"""Run the example with `python -m examples.orders`.

Optional arguments are `place o-1 ann 1999`, `work` or `deliver o-1 ann door`.
"""

from __future__ import annotations

import sys

from .app import app, place


def show() -> None:
    """Run one order from its submission to its delivery."""
    with app.worker():
        job = place.submit("o-1", "ann", 1999)
        app.signal(job.key, "delivered", {"to": "the front door"})
        print(job.result(60))


def main(arguments: list[str]) -> None:
    """Submit an order, run a worker until SIGTERM, or send the signal of a delivery. Without arguments, do all three."""
    match arguments:
        case []:
            show()
        case ["place", order, user, cents]:
            if not cents.isdecimal():
                sys.exit(f"CENTS: {cents!r} is not a whole number; for example: 1999")
            print(place.submit(order, user, int(cents)).id)
        case ["work"]:
            app.work()
        case ["deliver", order, user, to]:
            try:
                app.signal(f"shop:{user}:{order}:place:v1", "delivered", {"to": to})
            except LookupError as error:
                sys.exit(f"order {order!r} of {user!r} is not placed, or already delivered ({error})")
        case _:
            sys.exit("use: no arguments | place ORDER USER CENTS | work | deliver ORDER USER TO")


if __name__ == "__main__":
    main(sys.argv[1:])
