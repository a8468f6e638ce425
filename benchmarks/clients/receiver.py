"""A gRPC server that receives batches of signals, and prints its port."""

import asyncio
from typing import Any

import grpc
import grpc.aio


class Methods(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self.receive)

    async def receive(self, message: bytes, context: Any) -> bytes:
        return b"\x01"


async def main() -> None:
    server = grpc.aio.server(handlers=[Methods()])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
