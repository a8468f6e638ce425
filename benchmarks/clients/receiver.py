"""A gRPC server as a process of its own, which takes batches of signals, and says on which port."""

import asyncio
from typing import Any

import grpc
import grpc.aio


class Methods(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self.take)

    async def take(self, message: bytes, context: Any) -> bytes:
        return b"\x01"


async def main() -> None:
    server = grpc.aio.server(handlers=[Methods()])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
