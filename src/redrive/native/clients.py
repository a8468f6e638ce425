"""Every client that a policy can be turned into, by name."""

from __future__ import annotations

from .arrow import PYARROW
from .aws import BOTOCORE
from .azure_storage import AZURE
from .google_api import GOOGLE
from .grpc import GRPC
from .mapped import Client
from .pool import URLLIB3
from .retrying import TENACITY
from .transport import HTTPX

CLIENTS: dict[str, Client] = {
    client.name: client for client in (TENACITY, BOTOCORE, AZURE, PYARROW, GRPC, URLLIB3, HTTPX, GOOGLE)
}
