"""Retry objects of other clients, made from a RetryPolicy, with the fields that they ignore.

No module here has the name of a function, so that `native.botocore` is always the function.
"""

from __future__ import annotations

from .aws import BOTOCORE, PYARROW, botocore, pyarrow_s3
from .azure_storage import AZURE, azure
from .celery_task import CELERY, celery
from .google_api import GOOGLE, google
from .grpc import GRPC, grpc_options
from .http_clients import HTTPX, URLLIB3, httpx, urllib3
from .mapping import ClientMapping, Mapped
from .object_store import OBSTORE, obstore
from .temporal_retry import TEMPORAL, temporal
from .tenacity_retry import TENACITY, tenacity

__all__ = [
    "Mapped",
    "azure",
    "botocore",
    "celery",
    "google",
    "grpc_options",
    "httpx",
    "obstore",
    "pyarrow_s3",
    "temporal",
    "tenacity",
    "urllib3",
]

CLIENTS: dict[str, ClientMapping] = {
    client.name: client
    for client in (
        TENACITY,
        BOTOCORE,
        AZURE,
        PYARROW,
        OBSTORE,
        GRPC,
        URLLIB3,
        HTTPX,
        GOOGLE,
        CELERY,
        TEMPORAL,
    )
}
"""All clients by name."""
