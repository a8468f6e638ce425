"""The API responds to any request as its description says (schemathesis)."""

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
from tests.console.sample_shop import SECRET, add_problems, shop

HEADERS = {"authorization": "Bearer 0123456789abcdef-token"}
EXAMPLES = 100 if os.environ.get("REDRIVE_FULL") == "1" else 2


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Any]:
    with shop(f"sqlite:///{tmp_path / 'ledger.db'}") as app:
        add_problems(app)
        lake = World(app.ledger)
        lake.backfill(3, 4)
        lake.reject(*lake.claim(5))
        console = asgi(app, token=HEADERS["authorization"].removeprefix("Bearer "))
        yield schemathesis.openapi.from_asgi("/api/openapi.json", console, headers=HEADERS)


@pytest.mark.req("O-4")
def test_responses_match_the_description(api: Any) -> None:
    # Without the pytest plugin, which every test run would load.
    operations = [result.ok() for result in api.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:

        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def check(case: Case[Any]) -> None:
            response = case.call(headers=HEADERS)
            assert response.status_code < 500, f"{case.as_curl_command()}: {response.text}"
            if not case.path.endswith("/reveal"):
                assert SECRET not in response.text
            # A request that fits the schema may still be invalid, such as one without a selection.
            case.validate_response(response, excluded_checks=[schemathesis.checks.positive_data_acceptance])

        check()
