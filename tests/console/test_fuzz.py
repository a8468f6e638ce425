"""Whatever is sent to the API, it answers as it says it does: schemathesis, on a seeded ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case

from redrive.console import asgi
from tests.conformance.partitions.world import World
from tests.console.world import SECRET, in_trouble, shop

HEADERS = {"authorization": "Bearer 0123456789abcdef-token"}
EXAMPLES = 100 if os.environ.get("REDRIVE_FULL") == "1" else 2


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Any]:
    with shop(f"sqlite:///{tmp_path / 'ledger.db'}") as app:
        in_trouble(app)
        lake = World(app.ledger)
        lake.backfill(3, 4)
        lake.reject(*lake.claim(5))
        console = asgi(app, token=HEADERS["authorization"].removeprefix("Bearer "))
        yield schemathesis.openapi.from_asgi("/api/openapi.json", console, headers=HEADERS)


@pytest.mark.req("O-4")
def test_it_answers_as_it_says(api: Any) -> None:
    # Not by its plugin for pytest, which would be loaded in every run of any test.
    operations = [found.ok() for found in api.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:

        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def answers(case: Case[Any]) -> None:
            answer = case.call(headers=HEADERS)
            assert answer.status_code < 500, f"{case.as_curl_command()}: {answer.text}"
            if not case.path.endswith("/reveal"):
                assert SECRET not in answer.text
            # What fits the schema may still make no sense: no selection at all, an empty reason.
            case.validate_response(answer, excluded_checks=[schemathesis.checks.positive_data_acceptance])

        answers()
