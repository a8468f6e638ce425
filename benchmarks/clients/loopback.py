"""A minimal HTTP server with keep-alive, in its own process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PROGRAM = """
import asyncio

HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: 33\\r\\n\\r\\n"
RESPONSE = HEAD + b'{"id": "s-1", "state": "waiting"}'

class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if data.endswith(b"\\r\\n\\r\\n"):
            self.transport.write(RESPONSE)

async def main():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def start_server() -> Iterator[str]:
    """Start the server and yield its address."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()
