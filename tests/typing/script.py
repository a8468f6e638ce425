"""A script that fetches exchange rates with requests."""

from os import environ

import requests

from redrive import current, retry

SERVICE = environ.get("RATES_URL", "https://rates.example.com")


@retry
def rates(day: str) -> dict[str, float]:
    reply = requests.get(f"{SERVICE}/{day}", timeout=current().remaining)
    reply.raise_for_status()
    found: dict[str, float] = reply.json()
    return found


if __name__ == "__main__":
    print(rates("2026-01-01"))
