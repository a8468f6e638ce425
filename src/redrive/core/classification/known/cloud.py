"""Cloud SDKs: AWS (botocore, boto3, and pyarrow's S3), Azure, Google and obstore."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...fault import PERMANENT, TRANSIENT, UNKNOWN, Fault, Kind
from .grpc import fault_of_call, fault_of_code
from .http_responses import fault_of_response, fault_of_status, retry_after
from .inspect import (
    NEVER_SENT,
    NEVER_SENT_PERMANENT,
    NO_CONNECTION,
    THROTTLED,
    TIMEOUT,
    Entry,
    FaultReader,
    Inspector,
    as_int,
    fault_of_inner,
    frames,
    inner_error,
    loop_counts,
    mark_spent,
    read,
    spent_if,
)

# AWS: botocore, aiobotocore, boto3 and s3transfer.

AWS_THROTTLING_CODES = frozenset(
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
"""The codes that botocore's standard mode treats as throttling."""
AWS_CODES: dict[str, Kind] = {
    **dict.fromkeys(AWS_THROTTLING_CODES, "throttled"),
    "RequestTimeout": "timeout",
    "RequestTimeoutException": "timeout",
    "InternalError": "transient",
    "ServiceUnavailable": "transient",
}


def _botocore_client_error(error: Exception, inspector: Inspector) -> Fault:
    """Classify by the code of the service, or by the HTTP status."""
    response = read(error, "response")
    metadata = _mapping_part(response, "ResponseMetadata")
    status = as_int(metadata.get("HTTPStatusCode"))
    after = retry_after(metadata.get("HTTPHeaders"), now=inspector.now)
    fault = UNKNOWN if status is None else fault_of_status(status, after)
    kind = AWS_CODES.get(str(_mapping_part(response, "Error").get("Code")))
    if kind is not None and fault.kind != "throttled":
        fault = Fault(kind, after, status=status)
    retries = as_int(metadata.get("RetryAttempts")) or 0
    return mark_spent(fault, "botocore") if retries > 0 else fault


def _mapping_part(response: object, name: str) -> Mapping[str, object]:
    part = response.get(name) if isinstance(response, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _was_retried_by_botocore(error: Exception) -> bool:
    attempts = loop_counts(error, "botocore/endpoint.py", "_send_request", "attempts")
    return bool(attempts) and attempts[0] > 1


def _count_botocore_attempts(entry: Entry) -> FaultReader:
    return spent_if(_was_retried_by_botocore, entry, "botocore")


def _botocore_tls(error: Exception, inspector: Inspector) -> Fault:
    arguments = read(error, "kwargs")
    inner = inspector.classify(arguments.get("error") if isinstance(arguments, Mapping) else None)
    return inner if inner.kind != "unknown" else NEVER_SENT


def _s3_transfer(error: Exception, inspector: Inspector) -> Fault:
    """Classify errors of upload_file and download_file. s3transfer retries downloads itself."""
    last = inner_error(error, "last_exception")
    if last is None:
        return inspector.classify(inner_error(error, "__cause__", "__context__"))
    return mark_spent(inspector.classify(last), "s3transfer")


_AWS: dict[str, Entry] = {
    "botocore.ClientError": _botocore_client_error,
    "botocore.ConnectTimeoutError": _count_botocore_attempts(NO_CONNECTION),
    "botocore.EndpointConnectionError": _count_botocore_attempts(NEVER_SENT),
    "botocore.ProxyConnectionError": _count_botocore_attempts(NEVER_SENT),
    "botocore.SSLError": _count_botocore_attempts(_botocore_tls),
    "botocore.ReadTimeoutError": _count_botocore_attempts(TIMEOUT),
    "botocore.ConnectionClosedError": _count_botocore_attempts(TRANSIENT),
    "botocore.ConnectionError": _count_botocore_attempts(TRANSIENT),
    "botocore.HTTPClientError": _count_botocore_attempts(TRANSIENT),
    "botocore.ResponseStreamingError": TRANSIENT,
    "botocore.IncompleteReadError": TRANSIENT,
    "botocore.ChecksumError": TRANSIENT,
    "botocore.FlexibleChecksumError": TRANSIENT,
    "boto3.RetriesExceededError": _s3_transfer,
    "boto3.S3UploadFailedError": _s3_transfer,
    "s3transfer.RetriesExceededError": _s3_transfer,
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

# pyarrow's S3 raises a plain OSError. Only its text says what happened.

_ARROW_MESSAGE = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d{3})\))? during ")
ARROW_S3_ERRORS: dict[str, Fault] = {
    "NETWORK_CONNECTION": TRANSIENT,
    "INTERNAL_FAILURE": TRANSIENT,
    "SERVICE_UNAVAILABLE": TRANSIENT,
    "REQUEST_TIMEOUT": TIMEOUT,
    "SLOW_DOWN": THROTTLED,
    "THROTTLING": THROTTLED,
    "ACCESS_DENIED": PERMANENT,
    "RESOURCE_NOT_FOUND": PERMANENT,
    "NO_SUCH_BUCKET": PERMANENT,
    "NO_SUCH_KEY": PERMANENT,
    "SIGNATURE_DOES_NOT_MATCH": PERMANENT,
    "INVALID_ACCESS_KEY_ID": PERMANENT,
}


def fault_of_arrow_message(text: str) -> Fault:
    """Classify by the message of pyarrow. Unknown if it is not one of its messages."""
    match = _ARROW_MESSAGE.search(text)
    if match is None:
        return UNKNOWN
    name, status = match[1], match[2]
    return fault_of_status(int(status)) if status else ARROW_S3_ERRORS.get(name, UNKNOWN)


# Azure: azure-core, and the clients on top of it.

AZURE_BUSY_CODES = frozenset(("ServerBusy", "TooManyRequests", "OperationTimedOut"))
_AZURE_INNER = ("inner_exception", "exc_value", "__cause__")


def _azure_response(error: Exception, inspector: Inspector) -> Fault:
    fault = fault_of_response(read(error, "response"), inspector)
    fault = fault or fault_of_response(error, inspector)
    if fault is None:
        return fault_of_inner(UNKNOWN, *_AZURE_INNER)(error, inspector)
    code = read(error, "error_code")
    if fault.status == 503 and (read(code, "value") or code) in AZURE_BUSY_CODES:
        return replace(fault, kind="throttled")
    return fault


def _count_azure_retries(entry: Entry) -> FaultReader:
    return spent_if(
        lambda error: any(len(history) > 1 for history in _azure_histories(error)),
        entry,
        "azure-core",
    )


def _azure_histories(error: Exception) -> Iterator[list[object]]:
    """Find the failures that azure's retry policy recorded, in the frames of the traceback.

    They cannot be found if the caller raises the error later, by `response.raise_for_status()`.
    """
    for raised in (error, inner_error(error, "__context__")):
        for frame in frames(raised):
            if "/azure/" not in frame.f_code.co_filename.replace("\\", "/"):
                continue
            settings = frame.f_locals.get("retry_settings")
            context = read(frame.f_locals.get("pipeline_response"), "context")
            for holder in (settings, context):
                history = holder.get("history") if isinstance(holder, dict) else None
                if isinstance(history, list):
                    yield history


_AZURE: dict[str, Entry] = {
    "azure.HttpResponseError": _count_azure_retries(_azure_response),
    "azure.ClientAuthenticationError": PERMANENT,
    "azure.DecodeError": PERMANENT,
    "azure.IncompleteReadError": _count_azure_retries(TRANSIENT),
    # Documented as "no request was sent", but azure wraps all kinds of errors in it. It is believed
    # only if the inner error says so, too.
    "azure.ServiceRequestTimeoutError": _count_azure_retries(
        fault_of_inner(NO_CONNECTION, *_AZURE_INNER)
    ),
    "azure.ServiceRequestError": _count_azure_retries(fault_of_inner(TRANSIENT, *_AZURE_INNER)),
    "azure.ServiceResponseTimeoutError": _count_azure_retries(TIMEOUT),
    "azure.ServiceResponseError": _count_azure_retries(TRANSIENT),
    "azure.DeserializationError": PERMANENT,
    "azure.SerializationError": PERMANENT,
    "azure.AzureError": fault_of_inner(UNKNOWN, *_AZURE_INNER),
}


# Google: google-api-core over REST and gRPC, and google-auth.


def _google_call_error(error: Exception, inspector: Inspector) -> Fault:
    """Classify by the gRPC code if there is one: ABORTED is retried, but not the status 409."""
    fault = _google_fault(error, inspector)
    delay = _google_retry_delay(read(error, "details"))
    return replace(fault, after=delay) if delay is not None and fault.retryable else fault


def _google_fault(error: Exception, inspector: Inspector) -> Fault:
    response = read(error, "response")
    if callable(read(response, "trailing_metadata")):
        return fault_of_call(response)
    status = as_int(read(error, "code"))
    after = retry_after(read(response, "headers"), now=inspector.now)
    grpc_fault = fault_of_code(read(error, "grpc_status_code"))
    if grpc_fault.kind != "unknown":
        return replace(grpc_fault, after=after, status=status)
    return UNKNOWN if status is None else fault_of_status(status, after)


def _google_retry_delay(details: object) -> float | None:
    """Return the delay of a google.rpc.RetryInfo in the details of an error."""
    for detail in details if isinstance(details, Iterable) else ():
        delay = read(detail, "retry_delay")
        seconds, nanos = as_int(read(delay, "seconds")), as_int(read(delay, "nanos"))
        if seconds is not None and nanos is not None:
            return max(0.0, seconds + nanos / 1e9)
    return None


def _google_retry_error(error: Exception, inspector: Inspector) -> Fault:
    """Classify an error whose time is used up. It does not say after how many attempts."""
    return mark_spent(inspector.classify(read(error, "cause")), "google-api-core")


def _google_auth_error(error: Exception, inspector: Inspector) -> Fault:
    return TRANSIENT if read(error, "retryable") is True else PERMANENT


_GOOGLE: dict[str, Entry] = {
    "google.RetryError": _google_retry_error,
    "google.GoogleAPICallError": _google_call_error,
    "google.TransportError": TRANSIENT,
    "google.TimeoutError": TIMEOUT,
    "google.GoogleAuthError": _google_auth_error,
}

# obstore has few classes of errors. The text says what happened, and how often it was retried.

_OBSTORE_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})")
_OBSTORE_CODE = re.compile(r"<Code>(\w+)</Code>")
_OBSTORE_TRANSPORT = re.compile(r"HttpError \{\s*kind: (\w+)")
_OBSTORE_BUSY = re.compile(r"Server returned error response: .*(?:SlowDown|InternalError)")
_OBSTORE_RETRIES = re.compile(r", after [1-9]\d* retries, max_retries: ")


def _obstore_fault(error: Exception, _inspector: Inspector) -> Fault:
    text = str(error)
    status = _OBSTORE_STATUS.search(text)
    if status is not None:
        fault, code = fault_of_status(int(status[1])), _OBSTORE_CODE.search(text)
        is_busy = code is not None and code[1] in (AWS_THROTTLING_CODES | AZURE_BUSY_CODES)
        return replace(fault, kind="throttled") if is_busy and fault.retryable else fault
    if _OBSTORE_BUSY.search(text):
        return THROTTLED  # Amazon may send such an error with the status 200.
    transport = _OBSTORE_TRANSPORT.search(text)
    if transport is None:
        return UNKNOWN
    if "builder error" in text:
        return NEVER_SENT_PERMANENT  # Such as an address with http:// that is not allowed.
    if transport[1] == "Connect":
        is_rejected = "InvalidCertificate" in text
        return NEVER_SENT_PERMANENT if is_rejected else NEVER_SENT
    return TIMEOUT if transport[1] == "Timeout" else TRANSIENT


_OBSTORE: dict[str, Entry] = {
    "obstore.GenericError": spent_if(
        lambda error: _OBSTORE_RETRIES.search(str(error)) is not None, _obstore_fault, "obstore"
    ),
    "obstore.BaseError": PERMANENT,
}
FAMILIES: dict[str, dict[str, Entry]] = {
    "aws": _AWS,
    "azure": _AZURE,
    "google": _GOOGLE,
    "obstore": _OBSTORE,
}
