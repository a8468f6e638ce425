"""LLM calls with the real SDKs: which errors are retried, and that only one layer retries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeAlias

import httpx2
import pydantic
import pytest

from redrive import RetryPolicy, http, outcome, retry
from redrive.testing import Answer, FaultServer, instant

pytestmark = pytest.mark.req("C-5")
JSON = {"content-type": "application/json"}
POLICY = RetryPolicy(max_attempts=3, backoff_base=0.5, jitter=0)
Ask: TypeAlias = Callable[..., str]
ASKED: Any = [{"role": "user", "content": "hello"}]


def answer(status: int, body: dict[str, Any], **headers: str) -> Answer:
    return Answer(status, {**JSON, **headers}, json.dumps(body).encode())


def failure(status: int, **headers: str) -> Answer:
    return answer(status, {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}, **headers)


def responses_with(text: str, reason: str = "stop") -> dict[str, Answer]:
    """The same response in the format of each provider."""
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text}}
    ended = {"stop": "end_turn", "content_filter": "refusal"}[reason]
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": ended, "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {
        "openai": answer(200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}),
        "anthropic": answer(200, {**message, "content": [{"type": "text", "text": text}], "usage": usage}),
    }


class Refusal(Exception):
    """A refusal of the provider. A retry does not help."""


def ask_openai(url: str, **options: Any) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key="k", **{"max_retries": 0, **options}) as client:
        choice = client.chat.completions.create(model="m", messages=ASKED).choices[0]
        if choice.finish_reason == "content_filter":
            raise Refusal
        return choice.message.content or ""


def ask_anthropic(url: str, **options: Any) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key="k", **{"max_retries": 0, **options}) as client:
        message = client.messages.create(model="m", max_tokens=1, messages=ASKED)
        if message.stop_reason == "refusal":
            raise Refusal
        (block,) = message.content
        assert block.type == "text"
        return block.text


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def ask(provider: str) -> Ask:
    return {"openai": ask_openai, "anthropic": ask_anthropic}[provider]


@pytest.mark.parametrize("trouble", [429, 529, 500, 503, "reset", "close"])
def test_transient_errors_are_retried(provider: str, ask: Ask, server: FaultServer, trouble: Any) -> None:
    server.script(*(failure(trouble) if isinstance(trouble, int) else trouble,) * 2, responses_with("hi")[provider])
    with instant() as clock:
        assert retry(POLICY).call(ask, server.url) == "hi"
    assert (server.count, clock.slept) == (3, [0.5, 1.0])


def test_retry_after_of_the_provider_is_honoured(provider: str, ask: Ask, server: FaultServer) -> None:
    server.script(failure(429, **{"retry-after": "7"}), responses_with("hi")[provider])
    with instant() as clock:
        assert retry(POLICY).call(ask, server.url) == "hi"
    assert clock.slept == [7]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_invalid_requests_are_not_retried(ask: Ask, server: FaultServer, status: int) -> None:
    import anthropic
    import openai

    server.script(failure(status))
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
        retry(POLICY).call(ask, server.url)
    assert server.count == 1


def test_an_invalid_response_is_not_retried(provider: str, ask: Ask, server: FaultServer) -> None:
    class Summary(pydantic.BaseModel):
        title: str

    @retry(POLICY)
    def summarise() -> Summary:
        return Summary.model_validate_json(ask(server.url))

    server.script(responses_with('{"headline": "x"}')[provider])
    with pytest.raises(pydantic.ValidationError):
        summarise()
    assert server.count == 1
    server.script(responses_with('{"headline": "x"}')[provider], responses_with('{"title": "x"}')[provider])
    with instant():
        assert retry(POLICY, on=pydantic.ValidationError).call(summarise).title == "x", "unless you say that it is worth it"


def test_a_refusal_is_not_retried(provider: str, ask: Ask, server: FaultServer) -> None:
    server.script(responses_with("", "content_filter")[provider])
    with pytest.raises(Refusal):
        retry(POLICY).call(ask, server.url)
    assert server.count == 1


@pytest.mark.req("C-7")
@pytest.mark.parametrize("trouble", [500, "close"])
def test_the_sdks_own_retries_are_detected(ask: Ask, server: FaultServer, trouble: Any) -> None:
    import anthropic
    import openai

    server.script(failure(trouble) if isinstance(trouble, int) else trouble)
    with pytest.raises((openai.APIError, anthropic.APIError)) as caught:
        retry(POLICY).call(ask, server.url, max_retries=1)
    assert server.count == 2, "the SDK's two, and not three times two"
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "nested"


@pytest.mark.req("C-7")
def test_the_sdks_own_retries_are_detected_in_async_code(server: FaultServer) -> None:
    import openai

    @retry(POLICY)
    async def embed(text: str) -> object:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=1) as client:
            return await client.embeddings.create(model="e", input=text)

    server.script(failure(500))
    with pytest.raises(openai.InternalServerError):
        asyncio.run(embed("x"))
    assert server.count == 2


@pytest.mark.req("C-7", "H-1")
def test_the_transport_can_be_the_only_retry_layer(provider: str, ask: Ask, server: FaultServer) -> None:
    """The transport has its own budget and records. The SDK's retries are off."""
    import anthropic
    import openai

    server.script(failure(529), responses_with("hi")[provider])
    headers = {"idempotency-key": "k-1"}
    quick = retry(RetryPolicy(max_attempts=3, backoff_base=0.001, jitter=0))
    with httpx2.Client(transport=http.Transport(retry=quick), headers=headers) as inner:
        assert ask(server.url, http_client=inner) == "hi"
        assert server.count == 2
    server.script(failure(529))
    transport = http.Transport(retry=quick)
    with (
        httpx2.Client(transport=transport, headers=headers) as inner,
        pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught,
    ):
        retry(POLICY).call(ask, server.url, http_client=inner)
    assert server.count == 2 + 3
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "nested"


@pytest.mark.req("H-3")
@pytest.mark.parametrize("trouble", [529, 500, "reset", "close"])
def test_chat_calls_are_retried_by_exactly_one_layer(provider: str, ask: Ask, server: FaultServer, trouble: Any) -> None:
    """The setup of docs/how-to/calls/http.md: the SDK's retries are off, and the transport repeats POST."""
    import anthropic
    import openai

    failing = failure(trouble) if isinstance(trouble, int) else trouble
    quick = retry(RetryPolicy(max_attempts=3, backoff_base=0.001, jitter=0))
    server.script(failing, failing, responses_with("hi")[provider])
    with httpx2.Client(transport=http.Transport(retry=quick, idempotent=True)) as inner:
        assert ask(server.url, http_client=inner) == "hi"
    assert server.count == 3
    server.script(failing)
    for count, layer in ((6, ask), (9, retry(POLICY)(ask))):
        inner = httpx2.Client(transport=http.Transport(retry=quick, idempotent=True))
        with inner, pytest.raises((openai.APIError, anthropic.APIError)):
            layer(server.url, http_client=inner)
        assert server.count == count, "a layer around does not begin anew"


@pytest.mark.req("H-3")
def test_a_chat_call_is_not_repeated_by_default(ask: Ask, server: FaultServer) -> None:
    import anthropic
    import openai

    server.script(failure(500))
    with httpx2.Client(transport=http.Transport()) as inner, pytest.raises((openai.APIError, anthropic.APIError)):
        ask(server.url, http_client=inner)
    assert server.count == 1
