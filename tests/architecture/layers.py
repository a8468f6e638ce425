"""The layers of docs/architecture.md: allowed imports, and the third-party packages of each part."""

from __future__ import annotations

# Each part may import itself and every lower layer. Parts on one line do not import each other, except for the first line, whose
# parts form one unit.
CORE = frozenset(("errors", "backoff", "core"))
LAYERS: tuple[frozenset[str], ...] = (
    CORE,
    frozenset(("journal", "settings")),
    frozenset(("engine",)),
    frozenset(("analysis",)),
    frozenset(("native", "ledger")),
    frozenset(("worker",)),
    frozenset(("http", "grpc", "storage", "idempotency", "batch", "commands", "messages")),
    frozenset(("partitions", "temporal")),
    frozenset(("app",)),
    frozenset(("ops",)),
    frozenset(("console", "demo")),
    frozenset(("cli",)),
    frozenset(("__main__",)),
)
PLACE = {part: height for height, layer in enumerate(LAYERS) for part in layer}

# CLI and console only show results of `ops`. `redrive serve` starts the console.
SKINS = {"cli": CORE | {"ops", "console"}, "console": CORE | {"ops"}, "__main__": frozenset(("cli",))}

# `testing` is for users and may import everything below `ops`. No other part imports it.
TESTING = frozenset(part for part, height in PLACE.items() if height < PLACE["ops"])

# The root exports the public names. The demo is written like a user's program, with a server that fails on request.
USERS = frozenset(("demo",))


def may_import(importer: str, imported: str) -> bool:
    """Return whether a module of one part may import a module of the other. '' is the root."""
    if importer in ("", imported):
        return True
    if imported == "":
        return importer in USERS
    if imported == "testing":
        return importer in USERS
    if importer == "testing":
        return imported in TESTING
    if importer in SKINS:
        return imported in SKINS[importer]
    if {importer, imported} <= CORE:
        return True
    return PLACE[imported] < PLACE[importer]


# Third-party packages that a part may import: those of its extras. A single module is listed if only it may import one.
FOREIGN: dict[str, frozenset[str]] = {
    "ledger": frozenset(("sqlalchemy", "alembic", "psycopg")),
    "ledger.db.caller_runners": frozenset(("sqlalchemy", "psycopg", "psycopg2")),
    "ledger.db.caller_transaction": frozenset(("sqlalchemy", "psycopg", "psycopg2")),
    "native": frozenset(
        ("azure", "boto3", "botocore", "google", "grpc", "httpx", "httpx2", "pyarrow", "requests", "tenacity", "urllib3")
    ),
    "http": frozenset(("httpx", "httpx2")),
    "grpc": frozenset(("grpc",)),
    "messages": frozenset(("aio_pika", "aiormq", "confluent_kafka", "nats", "pamqp", "redis", "sqlalchemy")),
    "storage": frozenset(("aiobotocore", "asyncssh", "azure", "botocore", "fsspec", "httpx2", "pyarrow", "s3fs")),
    "idempotency": frozenset(("sqlalchemy",)),
    "worker": frozenset(("sqlalchemy",)),
    "batch": frozenset(("sqlalchemy",)),
    "batch.progress_bar": frozenset(("rich",)),
    "batch.rich_progress": frozenset(("rich",)),
    "commands": frozenset(("cronsim", "sqlalchemy")),
    "partitions": frozenset(("sqlalchemy",)),
    "temporal": frozenset(("temporalio",)),
    "partitions.raw.parquet": frozenset(("pyarrow",)),
    "partitions.reader": frozenset(("duckdb", "pandas", "polars", "pyarrow")),
    "app": frozenset(("sqlalchemy",)),
    "ops": frozenset(("sqlalchemy",)),
    "cli": frozenset(("typer", "rich")),
    "console": frozenset(("fastapi", "jinja2", "markupsafe", "pydantic", "starlette", "uvicorn")),
    "demo": frozenset(("rich",)),
    "demo.scenarios.grpc_incident": frozenset(("grpc",)),
    "testing": frozenset(("pytest",)),
    "testing.grpc_server": frozenset(("grpc",)),
    "testing.app_sandbox": frozenset(("sqlalchemy",)),
    "testing.stepwise_runner": frozenset(("sqlalchemy",)),
    "journal.sinks.otel": frozenset(("opentelemetry",)),
    "journal.sinks.prometheus": frozenset(("prometheus_client",)),
    "journal.sinks.structlog": frozenset(("structlog",)),
}

# `core` is pure: modules for clocks, random numbers, files, sockets and processes are not allowed.
IMPURE = frozenset(
    """asyncio http io logging multiprocessing os pathlib random secrets select selectors shutil signal socket sqlite3
    ssl subprocess tempfile threading time urllib uuid""".split()
)
ALLOWED_IN_CORE = {
    ("redrive.core.clock", "time"): "the one place where time comes from",
    ("redrive.core.clock", "asyncio"): "to sleep in async code",
    ("redrive.core.codec.values", "pathlib"): "the type alone: a path is stored as text",
    ("redrive.core.codec.values", "uuid"): "the type alone: none is drawn",
    ("redrive.core.event_loop_thread", "asyncio"): "the event loop itself",
    ("redrive.core.event_loop_thread", "threading"): "the thread of the event loop",
    ("redrive.core.lock", "os"): "register_at_fork: a child must not inherit a lock that is held",
    ("redrive.core.policy", "os"): "environ, the default of from_environment",
}

# Names that do not describe the content of a module.
EMPTY_NAMES = frozenset("utils util helpers helper manager managers common misc base impl shared stuff tools".split())
