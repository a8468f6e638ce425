"""Bare boto3 on the tests' S3 server: to make buckets, and to look at what is really there."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

REGION = "us-east-1"


def client(url: str) -> Any:
    """A client that neither waits nor tries again. url: with key and secret in it."""
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
