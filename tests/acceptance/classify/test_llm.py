"""The openai and anthropic SDKs against a server that returns their errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pydantic
import pytest

from redrive.core.fault import Fault
from redrive.testing.http_server import Answer, FaultServer, refused
from tests.acceptance.classify.clients import Limit, catch_fault, hasty

pytestmark = pytest.mark.req("C-5")
JSON = {"content-type": "application/json"}
Ask: TypeAlias = Callable[[str], object]


def ask_openai(url: str) -> object:
    import openai

    with openai.OpenAI(base_url=url, api_key="k", max_retries=0, timeout=Limit.seconds) as client:
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])


def ask_anthropic(url: str) -> object:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=Limit.seconds) as client:
        return client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "hello"}])


by_sdk = pytest.mark.parametrize("ask", [ask_openai, ask_anthropic])


def failure(status: int, headers: Mapping[str, str] | None = None, **error: object) -> Answer:
    return Answer(status, {**JSON, **(headers or {})}, json.dumps({"type": "error", "error": error}).encode())


@by_sdk
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "permanent"),
        (401, "permanent"),
        (403, "permanent"),
        (404, "permanent"),
        (408, "timeout"),
        (409, "permanent"),
        (413, "permanent"),
        (422, "permanent"),
        (429, "throttled"),
        (500, "transient"),
        (501, "permanent"),
        (502, "transient"),
        (503, "transient"),
        (504, "timeout"),
        (520, "transient"),
        (529, "throttled"),
    ],
)
def test_llm_statuses_are_classified(ask: Ask, status: int, kind: str) -> None:
    with FaultServer(failure(status, message="no")) as server:
        assert catch_fault(lambda: ask(server.url))[1] == Fault(kind, status=status)  # type: ignore[arg-type]  # valid kinds


@by_sdk
@pytest.mark.req("R-6")
@pytest.mark.parametrize(("name", "text", "seconds"), [("retry-after", "7", 7.0), ("retry-after-ms", "250", 0.25)])
def test_retry_after_of_llm_responses_sets_the_wait(ask: Ask, name: str, text: str, seconds: float) -> None:
    with FaultServer(failure(429, {name: text}, message="slow down")) as server:
        assert catch_fault(lambda: ask(server.url))[1] == Fault("throttled", seconds, status=429)


@by_sdk
def test_the_should_retry_header_decides(ask: Ask) -> None:
    with FaultServer(failure(500, {"x-should-retry": "false"}), failure(409, {"x-should-retry": "true"})) as server:
        assert catch_fault(lambda: ask(server.url))[1].kind == "permanent"
        assert catch_fault(lambda: ask(server.url))[1].kind == "transient"


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (ask_openai, {"code": "insufficient_quota", "type": "insufficient_quota"}),
        (ask_anthropic, {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}),
    ],
)
def test_an_exhausted_quota_is_permanent_despite_its_429(ask: Ask, error: dict[str, Any]) -> None:
    with FaultServer(failure(429, **error, message="pay")) as server:
        assert catch_fault(lambda: ask(server.url))[1] == Fault("permanent", status=429)


@by_sdk
@pytest.mark.parametrize("code", ["content_policy_violation", "invalid_prompt", "context_length_exceeded"])
def test_a_content_refusal_is_permanent(ask: Ask, code: str) -> None:
    with FaultServer(failure(400, code=code, type="invalid_request_error", message="no")) as server:
        assert not catch_fault(lambda: ask(server.url))[1].retryable


@by_sdk
def test_an_llm_response_that_is_not_json_is_permanent(ask: Ask) -> None:
    with FaultServer(Answer(200, JSON, b"not json")) as server:
        assert catch_fault(lambda: ask(server.url))[1] == Fault("permanent")


def test_a_response_that_does_not_match_its_schema_is_permanent() -> None:
    class Reply(pydantic.BaseModel):
        price: float

    with FaultServer(Answer(200, JSON, b'{"price": "dear"}')):
        assert catch_fault(lambda: Reply.model_validate_json('{"price": "dear"}'))[1] == Fault("permanent")


@by_sdk
def test_llm_connection_errors_are_classified(ask: Ask) -> None:
    with FaultServer("reset", "hang", Answer(200, JSON, b"{", trouble="cut")) as server:
        assert catch_fault(lambda: ask(server.url))[1] == Fault("transient")
        with hasty():
            assert catch_fault(lambda: ask(server.url))[1] == Fault("timeout")
        assert catch_fault(lambda: ask(server.url))[1] == Fault("transient")
    with refused() as url:
        assert catch_fault(lambda: ask(url))[1] == Fault("transient", sent=False)


def stream_openai(url: str) -> object:
    import openai

    with openai.OpenAI(base_url=url, api_key="k", max_retries=0, timeout=Limit.seconds) as client:
        return list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], stream=True))


def stream_anthropic(url: str) -> object:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=Limit.seconds) as client:
        said: Any = [{"role": "user", "content": "x"}]
        return list(client.messages.create(model="m", max_tokens=1, messages=said, stream=True))


@pytest.mark.parametrize("stream", [stream_openai, stream_anthropic])
@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("overloaded_error", "throttled"),
        ("rate_limit_error", "throttled"),
        ("api_error", "transient"),
        ("timeout_error", "timeout"),
        ("invalid_request_error", "permanent"),
        ("insufficient_quota", "permanent"),
    ],
)
def test_an_error_in_a_stream_after_a_200_is_classified(stream: Ask, word: str, kind: str) -> None:
    error = json.dumps({"type": "error", "error": {"type": word, "message": "no"}})
    answer = Answer(200, {"content-type": "text/event-stream"}, f"event: error\ndata: {error}\n\n".encode())
    with FaultServer(answer) as server:
        assert catch_fault(lambda: stream(server.url))[1].kind == kind
