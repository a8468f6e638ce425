"""The services that the example calls. Each is a folder with a file for each request.

Like a real service, they accept an idempotency key. A request with a known key has no second effect.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from redrive import current


def call_service(name: str, content: str) -> None:
    """Send a request under the idempotency key of the running step."""
    folder = Path(os.environ.get("ORDERS_SERVICES", "services")) / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "calls.log").open("a", encoding="utf-8") as calls:
        calls.write(f"{content}\n")
    request = folder / f"{sha256(str(current().key).encode()).hexdigest()[:16]}.request"
    try:
        with request.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        pass  # the service has already processed this key


def effects(folder: Path) -> dict[str, list[str]]:
    """Return the effects of all services."""
    return {
        service.name: sorted(request.read_text(encoding="utf-8") for request in service.glob("*.request"))
        for service in sorted(folder.iterdir())
    }
