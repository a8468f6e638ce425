"""Whatever is sent to the API, it answers as it says it does: schemathesis, on a seeded ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case

from redrive.console import asgi
from tests.console.world import SECRET, in_trouble, shop

TOKEN = "0123456789abcdef-token"
EXAMPLES = 200 if os.environ.get("REDRIVE_FULL") == "1" else 4


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    with shop(f"sqlite:///{folder / 'ledger.db'}") as app:
        in_trouble(app)
        yield schemathesis.openapi.from_asgi("/api/openapi.json", asgi(app, token=TOKEN), headers=_headers())


def _headers() -> dict[str, str]:
    return {"authorization": f"Bearer {TOKEN}"}


schema = schemathesis.pytest.from_fixture("api")


@pytest.mark.req("O-4")
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_it_answers_as_it_says(case: Case) -> None:
    answer = case.call(headers=_headers())
    assert answer.status_code < 500
    if not case.path.endswith("/reveal"):
        assert SECRET not in answer.text
    case.validate_response(answer)
