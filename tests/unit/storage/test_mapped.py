"""Errors of clients in our words: what was wrong, where, also where no file is meant but all of them."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from botocore.exceptions import ClientError, EndpointConnectionError

from redrive.errors import Denied, StorageError, Unavailable
from redrive.storage.azure_mapped import from_azure
from redrive.storage.mapped import from_os
from redrive.storage.s3_mapped import from_s3
from redrive.storage.sftp.failure import from_ssh


def s3(path: str, error: Exception) -> Exception:
    return from_s3(error, path=path, backend="lake", bucket="b-1")


def azure(path: str, error: Exception) -> Exception:
    return from_azure(error, path=path, backend="lake", container="c-1")


def local(path: str, error: Exception) -> Exception:
    assert isinstance(error, OSError)
    return from_os(error, path=path, backend="lake")


def ssh(path: str, error: Exception) -> Exception:
    return from_ssh(error, path=path, backend="lake")


def refused_key() -> Exception:
    said = {"Error": {"Code": "InvalidAccessKeyId", "Message": "no such key"}}
    error: Exception = ClientError(said, "HeadBucket")
    return error


def late_clock() -> Exception:
    said = {"Error": {"Code": "RequestTimeTooSkewed", "Message": "the clocks differ too much"}}
    error: Exception = ClientError(said, "ListObjectsV2")
    return error


CASES: list[tuple[Callable[[str, Exception], Exception], Exception, type[StorageError], str]] = [
    (s3, refused_key(), Denied, "the bucket 'b-1' is not allowed: InvalidAccessKeyId: no such key"),
    (s3, late_clock(), Denied, "the bucket 'b-1' is not allowed: RequestTimeTooSkewed: the clocks differ too much"),
    (s3, EndpointConnectionError(endpoint_url="http://x"), Unavailable, "the bucket 'b-1' cannot be reached: "),
    (azure, ClientAuthenticationError("no"), StorageError, "the container 'c-1'"),
    (azure, ServiceRequestError("no route"), Unavailable, "the container 'c-1' cannot be reached: "),
    (local, PermissionError(errno.EACCES, "Permission denied"), Denied, "its root is not allowed: Permission denied"),
    (ssh, TimeoutError(), Unavailable, "no answer in time for its root"),
]


@pytest.mark.parametrize(("mapped", "error", "kind", "said"), CASES)
def test_without_a_path_it_is_the_whole(
    mapped: Callable[[str, Exception], Exception], error: Exception, kind: type[StorageError], said: str
) -> None:
    ours = mapped("", error)
    assert isinstance(ours, kind)
    assert str(ours).startswith(f"lake: {said}")
    assert "''" not in str(ours)
    assert "'a/b'" in str(mapped("a/b", error))
