"""Three nested layers with three attempts each make 3 calls, not 27."""

from __future__ import annotations

from redrive import RetryPolicy, outcome, retry

three = retry(RetryPolicy(max_attempts=3, backoff_base=0, jitter=0))
calls = 0


@three
def query() -> None:
    """The innermost layer, which always fails."""
    global calls
    calls += 1
    raise ConnectionRefusedError("connection refused")


@three
def repository() -> None:
    """The middle layer."""
    query()


@three
def handler() -> None:
    """The outermost layer."""
    repository()


def main() -> None:
    try:
        handler()
    except ConnectionRefusedError as error:
        ended = outcome(error)
        print(f"{calls} calls, made by {ended and ended.layer}")
        print(*error.__notes__, sep="\n")


if __name__ == "__main__":
    main()
