"""boto3 on the S3 server of the tests: creates buckets, and reads their real content."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

REGION = "us-east-1"


def options(url: str, port: int | None = None) -> dict[str, Any]:
    """Return options of the same server for the backends of `redrive.storage`. port: of a proxy before it."""
    parts = urlsplit(url)
    address = f"{parts.scheme}://{parts.hostname}:{port or parts.port}"
    return {"endpoint_url": address, "region": REGION, "key": parts.username, "secret": parts.password}


def client(url: str) -> Any:
    """A client without waits and retries. url: with key and secret."""
    parts = urlsplit(url)
    return boto3.client(
        "s3",
        endpoint_url=f"{parts.scheme}://{parts.hostname}:{parts.port}",
        region_name=REGION,
        aws_access_key_id=parts.username,
        aws_secret_access_key=parts.password,
        config=Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=1,
            read_timeout=5,
            s3={"addressing_style": "path"},
        ),
    )
