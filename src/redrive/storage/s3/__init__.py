"""S3: objects in a bucket, through s3fs or PyArrow."""

from __future__ import annotations

from .arrow import S3Arrow
from .backend import S3

__all__ = ["S3", "S3Arrow"]
