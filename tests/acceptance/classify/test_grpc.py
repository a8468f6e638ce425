"""gRPC status codes from a real server, through sync and aio channels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import grpc
import grpc.aio
import pytest

from redrive.core.fault import Fault
from redrive.testing.http_server import refused
from tests.acceptance.classify.clients import catch_fault, google_api

pytestmark = pytest.mark.req("C-3")
PUSHBACK = "grpc-retry-pushback-ms"
Call: TypeAlias = Callable[[str, str], object]


class Failing(grpc.GenericRpcHandler):
    """Responds to /s/CODE with that code, to /s/CODE.250 with that pushback, to /s/SLOW late, to /s/RAISE with an exception."""

    def service(self, handler_call_details: Any) -> Any:
        name, _, pushback = handler_call_details.method.rpartition("/")[2].partition(".")

        def answer(request: Any, context: Any) -> Any:
            if name == "SLOW":
                time.sleep(2)
            if name == "RAISE":
                raise ValueError("a bug of the server")
            if pushback:
                context.set_trailing_metadata(((PUSHBACK, pushback),))
            context.abort(grpc.StatusCode[name] if name != "SLOW" else grpc.StatusCode.INTERNAL, "failed to connect")

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pool = ThreadPoolExecutor(4)
    server = grpc.server(pool, handlers=[Failing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
    pool.shutdown()


def plain(address: str, method: str) -> object:
    with grpc.insecure_channel(address) as channel:
        rpc: Any = channel.unary_unary(f"/s/{method}")
        return rpc(b"", timeout=60 if method != "SLOW" else 0.1)


def aio(address: str, method: str) -> object:
    async def call() -> object:
        async with grpc.aio.insecure_channel(address) as channel:
            rpc: Any = channel.unary_unary(f"/s/{method}")
            return await rpc(b"", timeout=60 if method != "SLOW" else 0.1)

    return asyncio.run(call())


by_colour = pytest.mark.parametrize("call", [plain, aio])


@by_colour
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAVAILABLE", "transient"),
        ("INTERNAL", "transient"),
        ("ABORTED", "transient"),
        ("DEADLINE_EXCEEDED", "timeout"),
        ("RESOURCE_EXHAUSTED", "throttled"),
        ("UNKNOWN", "unknown"),
        ("RAISE", "unknown"),
        ("SLOW", "timeout"),
    ]
    + [
        (code, "permanent")
        for code in (
            "CANCELLED INVALID_ARGUMENT NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED UNAUTHENTICATED "
            "FAILED_PRECONDITION OUT_OF_RANGE UNIMPLEMENTED DATA_LOSS"
        ).split()
    ],
)
def test_grpc_codes_are_classified(call: Call, address: str, code: str, kind: str) -> None:
    assert catch_fault(lambda: call(address, code))[1] == Fault(kind)  # type: ignore[arg-type]  # the table above has valid kinds


@by_colour
@pytest.mark.req("R-6")
@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("250", Fault("throttled", 0.25)),
        ("0", Fault("throttled", 0.0)),
        ("-1", Fault("permanent")),
        ("soon", Fault("permanent")),
    ],
)
def test_pushback_sets_the_wait(call: Call, address: str, said: str, fault: Fault) -> None:
    assert catch_fault(lambda: call(address, f"RESOURCE_EXHAUSTED.{said}"))[1] == fault


@by_colour
def test_pushback_does_not_make_a_permanent_error_retryable(call: Call, address: str) -> None:
    assert catch_fault(lambda: call(address, "NOT_FOUND.250"))[1] == Fault("permanent")


@by_colour
def test_a_refused_grpc_connection_is_transient_and_counts_as_sent(call: Call) -> None:
    with refused() as url:
        assert catch_fault(lambda: call(url.removeprefix("http://"), "UNAVAILABLE"))[1] == Fault("transient")


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("ABORTED", Fault("transient")),  # though google maps it to 409
        ("RESOURCE_EXHAUSTED.1500", Fault("throttled", 1.5)),
        ("UNAVAILABLE.-1", Fault("permanent")),
        ("ALREADY_EXISTS", Fault("permanent")),
    ],
)
@pytest.mark.filterwarnings("ignore:Please install grpcio-status:ImportWarning")
def test_google_grpc_errors_are_classified(address: str, method: str, fault: Fault) -> None:
    exceptions, _ = google_api()

    def call() -> None:
        try:
            plain(address, method)
        except grpc.RpcError as error:
            raise exceptions.from_grpc_error(error) from error

    assert catch_fault(call)[1] == fault
