"""A RetryPolicy as the retry object of another client, with the fields that it cannot carry.

No file here has the name of a function: `native.botocore` is always the function.
"""

from __future__ import annotations

from .arrow import pyarrow_s3
from .aws import botocore
from .azure_storage import azure
from .google_api import google
from .grpc import grpc_options
from .mapped import Mapped
from .pool import urllib3
from .retrying import tenacity
from .transport import httpx

__all__ = ["Mapped", "azure", "botocore", "google", "grpc_options", "httpx", "pyarrow_s3", "tenacity", "urllib3"]
