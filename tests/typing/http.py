"""Type-checked, never run: arguments and results of the HTTP clients."""

from typing import Any, TypedDict, assert_type

import httpx
import httpx2
from pydantic import BaseModel, TypeAdapter

from redrive import Key, RetryPolicy, http, retry


class M(BaseModel):
    x: int


class D(TypedDict):
    x: int


client = http.Client("http://x", auth=httpx2.BasicAuth("a", "b"), client=httpx2.Client(), retry=RetryPolicy())
assert_type(client.get("/"), httpx2.Response)
assert_type(client.get("/", into=M), M)
assert_type(client.get("/", into=list[M]), list[M])
assert_type(client.get("/", into=D), D)
assert_type(client.get("/", into=TypeAdapter(dict[str, M]).validate_python), dict[str, M])
assert_type(client.post("/", json={}, idempotency_key=True, into=M), M)
assert_type(client.request("PUT", "/", content=b"", params={"a": 1}, ok_statuses={409}), httpx2.Response)
assert_type(client.using(user="ann", retry=retry(max_attempts=2)), http.Client)
client.post("/", json={}, idempotency_key=Key("a", "b", "c", "d"), operation="x", headers={"a": "b"})
client.get("/", json={})  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
client.get("/", timeout=3, idempotent=True)
client.get("/", timeout="3")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
client.post("/", idempotency_key=7)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
http.Client("http://x", retry=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
http.Client("http://x", client=httpx2.AsyncClient())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def parse(data: Any) -> int:
    return len(data)


async def later() -> None:
    async with http.AsyncClient("http://x") as api:
        assert_type(await api.get("/"), httpx2.Response)
        assert_type(await api.get("/", into=parse), int)
        assert_type(await api.post("/", json={}, into=M), M)
        assert_type(await api.request("PUT", "/", into=M), M)
        await api.wait_until_ready(within=5)


# --- the transport works with both libraries, sync and async
httpx.Client(transport=http.Transport())
httpx2.Client(transport=http.Transport(httpx2.HTTPTransport(), retry=retry()))
httpx.AsyncClient(transport=http.Transport(httpx.AsyncHTTPTransport()))
httpx2.AsyncClient(transport=http.Transport(retry=RetryPolicy(max_attempts=2)))
http.Transport("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
