"""botocore, aiobotocore and boto3."""

from __future__ import annotations

from collections.abc import Mapping

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault, Kind
from ..retry_after import retry_after
from .look import NEVER_SENT, NO_CONNECTION, TIMEOUT, Entry, Judge, Look, beneath, passed, read, spent, whole
from .status import by_status

LAYER = "botocore"
THROTTLING = frozenset(
    (
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionInProgressException",
    )
)
"""The codes that botocore's standard mode takes for throttling."""
CODES: dict[str, Kind] = {
    **dict.fromkeys(THROTTLING, "throttled"),
    "RequestTimeout": "timeout",
    "RequestTimeoutException": "timeout",
    "InternalError": "transient",
    "ServiceUnavailable": "transient",
}


def _client_error(error: Exception, look: Look) -> Fault:
    """By the service's code, else by the HTTP status. RetryAttempts counts what came after the first."""
    response = read(error, "response")
    answer = _part(response, "ResponseMetadata")
    status = whole(answer.get("HTTPStatusCode"))
    after = retry_after(answer.get("HTTPHeaders"), now=look.now)
    fault = UNKNOWN if status is None else by_status(status, after)
    kind = CODES.get(str(_part(response, "Error").get("Code")))
    if kind is not None and fault.kind != "throttled":
        fault = Fault(kind, after, status=status)
    return spent(fault, LAYER) if (whole(answer.get("RetryAttempts")) or 0) > 0 else fault


def _part(response: object, name: str) -> Mapping[str, object]:
    part = response.get(name) if isinstance(response, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _attempts(error: Exception) -> int:
    """How often it was sent. Errors of the connection do not say; the loop that they left has it in a variable."""
    for frame in passed(error, "botocore/endpoint.py", "_send_request"):
        return whole(frame.f_locals.get("attempts")) or 1
    return 1


def _counted(entry: Entry) -> Judge:
    def judge(error: Exception, look: Look) -> Fault:
        fault = entry if isinstance(entry, Fault) else entry(error, look)
        return spent(fault, LAYER) if _attempts(error) > 1 else fault

    return judge


def _tls(error: Exception, look: Look) -> Fault:
    inner = look.at(_part({"kwargs": read(error, "kwargs")}, "kwargs").get("error"))
    return inner if inner.kind != "unknown" else NEVER_SENT


def _transfer(error: Exception, look: Look) -> Fault:
    """boto3's upload_file and download_file; the transfer manager downloads again by itself."""
    last = beneath(error, "last_exception")
    if last is None:
        return look.at(beneath(error, "__cause__", "__context__"))
    return spent(look.at(last), "s3transfer")


KNOWN: dict[str, Entry] = {
    "botocore.ClientError": _client_error,
    "botocore.ConnectTimeoutError": _counted(NO_CONNECTION),
    "botocore.EndpointConnectionError": _counted(NEVER_SENT),
    "botocore.ProxyConnectionError": _counted(NEVER_SENT),
    "botocore.SSLError": _counted(_tls),
    "botocore.ReadTimeoutError": _counted(TIMEOUT),
    "botocore.ConnectionClosedError": _counted(TRANSIENT),
    "botocore.ConnectionError": _counted(TRANSIENT),
    "botocore.HTTPClientError": _counted(TRANSIENT),
    "botocore.ResponseStreamingError": TRANSIENT,
    "botocore.IncompleteReadError": TRANSIENT,
    "botocore.ChecksumError": TRANSIENT,
    "botocore.FlexibleChecksumError": TRANSIENT,
    "boto3.RetriesExceededError": _transfer,
    "boto3.S3UploadFailedError": _transfer,
    "s3transfer.RetriesExceededError": _transfer,
    **dict.fromkeys(
        (
            "botocore.ParamValidationError",
            "botocore.ValidationError",
            "botocore.NoCredentialsError",
            "botocore.PartialCredentialsError",
            "botocore.TokenRetrievalError",
            "botocore.SSOError",
            "botocore.LoginError",
            "botocore.BaseEndpointResolverError",
        ),
        PERMANENT,
    ),
    "botocore.BotoCoreError": UNKNOWN,
}
