"""Workflows of ten activities with the dev server of Temporal.

Run it with `python -m benchmarks.steps_suite.with_temporal JOBS`.

The database of the server is in memory, which is the default. A file is eight times slower. The workflows are queued before
the worker starts.
"""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from benchmarks.isolation import print_result

STEPS = 10
START_SECONDS = 30.0
CONCURRENT_STARTS = 50
"""Number of workflows that are started concurrently, before the clock starts."""


@activity.defn
async def plus_one(number: int) -> int:
    return number + 1


@workflow.defn
class Run:
    @workflow.run
    async def run(self) -> int:
        number = 0
        for _ in range(STEPS):
            number = await workflow.execute_activity(plus_one, number, start_to_close_timeout=timedelta(seconds=30))
        return number


@contextmanager
def server() -> Iterator[str]:
    """Run the dev server; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("temporal")
    options = ["--headless", "--log-level", "never", "--ip", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([str(program), "server", "start-dev", *options], stdout=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


async def connect(address: str) -> Client:
    """Connect as soon as the server is ready."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            return await Client.connect(address)
        except RuntimeError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.1)


def worker(client: Client) -> Worker:
    """Create a worker without the sandbox, which costs time."""
    return Worker(client, task_queue="bench", workflows=[Run], activities=[plus_one], workflow_runner=UnsandboxedWorkflowRunner())


async def rate(address: str, jobs: int) -> float:
    client = await connect(address)
    slots = asyncio.Semaphore(CONCURRENT_STARTS)

    async def start(name: str) -> object:
        async with slots:
            return await client.start_workflow(Run.run, id=name, task_queue="bench")

    async with worker(client):
        await client.execute_workflow(Run.run, id="warm", task_queue="bench")
    await asyncio.gather(*(start(f"job-{number}") for number in range(jobs)))
    began = time.perf_counter()
    async with worker(client):
        names = [f"job-{number}" for number in range(jobs)]
        results = await asyncio.gather(*(client.get_workflow_handle_for(Run.run, name).result() for name in names))
        seconds = time.perf_counter() - began
    if results != [STEPS] * jobs:
        raise RuntimeError(f"wrong results: {results[:3]}")
    return jobs / seconds


def measure(jobs: str) -> float:
    """Return workflows per second."""
    with server() as address:
        return asyncio.run(rate(address, int(jobs)))


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
