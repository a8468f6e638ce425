"""Call a flaky service with a budget for all calls, a deadline for each request, and log records."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from redrive import correlate, current, deadline, journal, outcome, retry
from redrive.testing import Answer, FaultServer

crm = retry(max_attempts=4, backoff_base=0.05, jitter=0.02, attempt_timeout=1, budget="crm", fields={"service": "crm"})


@crm
def customer(base: str, number: int) -> dict[str, Any]:
    """Read a customer. 503 and broken connections are retried, 404 is not."""
    with urllib.request.urlopen(f"{base}/customers/{number}", timeout=current().remaining) as response:
        data: dict[str, Any] = json.load(response)
    return data


def main() -> None:
    records = journal.ring(100)
    journal.subscribe(records, inline=True)
    ann = Answer(200, body=b'{"name": "Ann"}')
    with FaultServer(503, "reset", ann, 404) as server, correlate(request_id="r-1"), deadline(5):
        print("found", customer(server.url, 7), "after", server.count, "requests")
        try:
            customer(server.url, 8)
        except OSError as error:
            ended = outcome(error)
            print("not found:", error, "| reason:", ended and ended.reason)
    for record in records.records:
        print(record.kind, {name: record.fields.get(name) for name in ("request_id", "attempt", "error_class", "wait")})


if __name__ == "__main__":
    main()
