"""OpenID Connect: a provider authenticates people. Extra: `oidc`.

The authorization code flow with PKCE. The browser keeps state, nonce and verifier of a sign-in in a
cookie for ten minutes, so that any process of the console can finish it.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from httpx2 import AsyncClient, HTTPError
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from ...ops.sign_in.hashes import keep_secret, redact_text
from .credentials import Role
from .group_roles import GroupRoles, check_roles, user_of
from .user import SignInRefused, User

LOG = logging.getLogger("redrive.console")
DISCOVERY = "/.well-known/openid-configuration"
ALGORITHMS = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split()
"""Signatures with a public key. `none` and shared secrets are never accepted."""
TIMEOUT_SECONDS = 5.0
"""For each request to the provider."""
LEEWAY_SECONDS = 60
"""Accepted difference between the clocks of the provider and of this machine."""
METADATA_SECONDS = 3600.0
"""Time after which the provider's addresses and keys are read again."""
KEY_REFRESH_SECONDS = 30.0
"""Least time between two requests for keys after an unknown key."""
REQUIRED = ("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri")


class PendingSignIn(NamedTuple):
    """A sign-in that the browser is about to finish at the provider. Immutable."""

    state: str
    nonce: str
    verifier: str
    target: str
    """The page to open afterwards."""

    def to_cookie(self) -> str:
        """Return the text of the cookie."""
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode()

    @classmethod
    def from_cookie(cls, text: str, /) -> PendingSignIn | None:
        """Read a cookie. None: it is missing or not valid."""
        try:
            fields = json.loads(base64.urlsafe_b64decode(text.encode()))
            pending = cls(*fields)
        except (ValueError, TypeError):
            return None
        return pending if all(isinstance(each, str) for each in pending) else None


class SignedIn(NamedTuple):
    """The user that a provider has authenticated. Immutable."""

    user: User
    subject: str
    """The stable id of the user at the provider."""


@dataclass(frozen=True, slots=True)
class OIDC:
    """A provider of OpenID Connect. Event loops may share one.

    Attributes:
        issuer: Address of the provider, as in its discovery document.
        client_id: Id of the console at the provider.
        client_secret: Secret of the console at the provider. None: a public client.
        roles: Role of each group, or rights of its operators. The first group that a user has
            counts.
        role: Role of users without such a group. None: no access.
        claim: Claim with the groups: a list, or text with commas or spaces.
        name_claim: Claim with the name for the audit log. Without it, the subject is the name.
        scope: Requested scopes.
        redirect_url: URL of `/login/oidc/callback` of this console, as registered at the provider.
            None: derived from each request.
    """

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    roles: GroupRoles = field(default_factory=dict)
    role: Role | None = None
    claim: str = "groups"
    name_claim: str = "preferred_username"
    scope: str = "openid profile email"
    redirect_url: str | None = None
    _provider: _Provider = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            TypeError: An option has another type.
            ValueError: An option is not valid.
        """
        for option in ("issuer", "client_id", "claim", "name_claim", "scope"):
            if not isinstance(getattr(self, option), str) or not getattr(self, option):
                raise TypeError(f"OIDC: {option}= must be text and not empty")
        _check_url("issuer", self.issuer)
        if self.redirect_url is not None:
            _check_url("redirect_url", self.redirect_url)
        if self.client_secret is not None and not self.client_secret:
            raise ValueError("OIDC: client_secret= is empty; leave it out for a public client")
        if "openid" not in self.scope.split():
            raise ValueError(f"OIDC: scope= must contain openid, not {self.scope!r}")
        check_roles("OIDC", self.roles, self.role)
        if not self.roles and self.role is None:
            raise ValueError(
                'OIDC: no user would have access; pass roles={"sre": "operator"} or role="viewer"'
            )
        keep_secret(self.client_secret)
        object.__setattr__(self, "_provider", _Provider(self.issuer.rstrip("/")))

    async def start(self, redirect_uri: str, target: str, /) -> tuple[str, PendingSignIn]:
        """Return the URL of the provider where a person signs in, and the state of the sign-in.

        Raises:
            SignInRefused: The provider cannot be reached.
        """
        metadata = await self._provider.load()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        pending = PendingSignIn(state, nonce, verifier, target)
        async with self._client(redirect_uri) as client:
            url, _ = client.create_authorization_url(
                metadata["authorization_endpoint"],
                state=pending.state,
                nonce=pending.nonce,
                code_verifier=pending.verifier,
            )
        return str(url), pending

    async def finish(
        self, pending: PendingSignIn | None, answer: Mapping[str, str], redirect_uri: str, /
    ) -> SignedIn:
        """Check the answer of the provider, and return the user.

        Args:
            pending: The state of the sign-in. None: the browser has none.
            answer: The query of the callback.
            redirect_uri: The URL of the callback.

        Raises:
            SignInRefused: The answer is not valid, or the user has no access.
        """
        state = answer.get("state", "")
        if pending is None or not hmac.compare_digest(pending.state.encode(), state.encode()):
            raise SignInRefused(400, "The sign-in has expired or was started elsewhere. Retry.")
        if "error" in answer:
            problem = _line(answer.get("error_description") or answer["error"])
            raise SignInRefused(403, f"The identity provider refused the sign-in: {problem}")
        metadata = await self._provider.load()
        is_named = metadata.get("authorization_response_iss_parameter_supported") is True
        issuer = answer.get("iss", None if is_named else metadata["issuer"])
        if issuer != metadata["issuer"]:
            raise SignInRefused(400, "The answer is from another identity provider.")
        claims = await self._fetch_claims(metadata, pending, answer.get("code", ""), redirect_uri)
        return self._signed_in(claims)

    @staticmethod
    def read_pending(cookie: str, /) -> PendingSignIn | None:
        """Return the sign-in that a browser has started. None: it has none."""
        return PendingSignIn.from_cookie(cookie)

    def logout_url(self) -> str | None:
        """Return the URL that ends the session at the provider, if it is known."""
        endpoint = self._provider.metadata.get("end_session_endpoint")
        return (
            None if endpoint is None else f"{endpoint}?{urlencode({'client_id': self.client_id})}"
        )

    def _client(self, redirect_uri: str) -> AsyncOAuth2Client:
        method = "none" if self.client_secret is None else self._provider.auth_method()
        return AsyncOAuth2Client(
            client_id=self.client_id,
            client_secret=self.client_secret,
            token_endpoint_auth_method=method,
            scope=self.scope,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            timeout=TIMEOUT_SECONDS,
        )

    async def _fetch_claims(
        self, metadata: Mapping[str, Any], pending: PendingSignIn, code: str, redirect_uri: str
    ) -> dict[str, Any]:
        """Exchange the code for an id token, check it, and return its claims."""
        try:
            async with self._client(redirect_uri) as client:
                token = await client.fetch_token(
                    metadata["token_endpoint"],
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=pending.verifier,
                )
                claims = await self._check_id_token(metadata, token, pending.nonce)
                if self.claim not in claims or self.name_claim not in claims:
                    claims = await _add_user_info(client, metadata, claims)
        except OAuthError as error:
            raise _refuse(400, "The identity provider did not accept the sign-in.", error) from None
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise _refuse(400, "The identity token is not valid.", error) from None
        except HTTPError as error:
            raise _refuse(503, "The identity provider cannot be reached. Retry.", error) from None
        return claims

    async def _check_id_token(
        self, metadata: Mapping[str, Any], token: Mapping[str, Any], nonce: str
    ) -> dict[str, Any]:
        text = token["id_token"]
        try:
            decoded = _decode(text, await self._provider.keys())
        except (InvalidKeyIdError, BadSignatureError):  # the provider may have new keys
            decoded = _decode(text, await self._provider.keys(refresh=True))
        options: Any = {
            "iss": {"essential": True, "value": metadata["issuer"]},
            "aud": {"essential": True, "value": self.client_id},
        }
        params = {
            "nonce": nonce,
            "client_id": self.client_id,
            "access_token": token.get("access_token"),
        }
        claims = CodeIDToken(decoded.claims, decoded.header, options, params)
        claims.validate(leeway=LEEWAY_SECONDS)
        return dict(claims)

    def _signed_in(self, claims: Mapping[str, Any]) -> SignedIn:
        groups = claims.get(self.claim, ())
        if isinstance(groups, str):
            groups = groups.replace(",", " ").split()
        listed = groups if isinstance(groups, list) else ()
        members = [group for group in listed if isinstance(group, str)]
        subject = str(claims["sub"])
        name = claims.get(self.name_claim) or subject
        try:
            user = user_of(str(name), members, self.roles, self.role)
        except ValueError as error:
            raise _refuse(
                403, "Your name at the identity provider is not valid here.", error
            ) from None
        if user is None:
            wanted = ", ".join(self.roles)
            raise SignInRefused(
                403,
                f"You are signed in as {_line(str(name))}, but have no access to this console. "
                f"Ask for one of these groups: {wanted}.",
            )
        return SignedIn(user, subject)


class _Provider:
    """The addresses and keys of a provider, read at first use. Event loops may share one."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self.metadata: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._read_at = self._keys_at = float("-inf")

    async def load(self) -> Mapping[str, Any]:
        """Return the addresses. SignInRefused: the provider cannot be reached, or is another."""
        if not self.metadata or time.monotonic() - self._read_at > METADATA_SECONDS:
            metadata = await self._get(self._issuer + DISCOVERY)
            missing = [name for name in REQUIRED if not isinstance(metadata.get(name), str)]
            if missing or metadata["issuer"].rstrip("/") != self._issuer:
                problem = f"misses {', '.join(missing)}" if missing else "names another issuer"
                raise _refuse(503, "The identity provider is not configured correctly.", problem)
            try:
                for name in REQUIRED:
                    _check_url(name, metadata[name])
            except ValueError as error:
                message = "The identity provider is not configured correctly."
                raise _refuse(503, message, error) from None
            self.metadata, self._read_at, self._keys = metadata, time.monotonic(), None
        return self.metadata

    async def keys(self, *, refresh: bool = False) -> KeySet:
        """Return the public keys."""
        is_due = refresh and time.monotonic() - self._keys_at > KEY_REFRESH_SECONDS
        if self._keys is None or is_due:
            self._keys = KeySet.import_key_set(await self._get(self.metadata["jwks_uri"]))
            self._keys_at = time.monotonic()
        return self._keys

    def auth_method(self) -> str:
        """Return how the client sends its secret: in a header, unless the provider has no such."""
        default = ["client_secret_basic"]
        methods = self.metadata.get("token_endpoint_auth_methods_supported") or default
        is_basic = not isinstance(methods, list) or default[0] in methods
        return "client_secret_basic" if is_basic else "client_secret_post"

    async def _get(self, url: str) -> Any:
        try:
            async with AsyncClient(timeout=TIMEOUT_SECONDS) as client:
                response = await client.get(url)
                response.raise_for_status()
                answer = response.json()
            if not isinstance(answer, dict):
                raise TypeError("the answer is not an object")
        except (HTTPError, ValueError, TypeError) as error:
            raise _refuse(503, "The identity provider cannot be reached. Retry.", error) from None
        return answer


async def _add_user_info(
    client: AsyncOAuth2Client, metadata: Mapping[str, Any], claims: dict[str, Any]
) -> dict[str, Any]:
    """Return the claims with those of the user-info endpoint. The id token takes precedence."""
    endpoint = metadata.get("userinfo_endpoint")
    if not isinstance(endpoint, str):
        return claims
    _check_url("userinfo_endpoint", endpoint)
    response = await client.get(endpoint)
    response.raise_for_status()
    info = response.json()
    if info["sub"] != claims["sub"]:
        raise ValueError("the user info is about another user")
    return {**info, **claims}


def _decode(text: str, keys: KeySet) -> jwt.Token:
    registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    return jwt.decode(text, key=keys, registry=registry)


def _check_url(option: str, url: str) -> None:
    """Raise ValueError unless a URL is https, or http on this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if parts.scheme != "http" or not is_local:
        raise ValueError(f"OIDC: invalid {option} {url!r}; use https://…")


def _refuse(status: int, message: str, error: object) -> SignInRefused:
    """Log the reason, which may be about the configuration, and return the error for the person."""
    reason = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else str(error)
    LOG.warning("console: sign-in by OIDC failed: %s (%s)", message, _line(reason))
    return SignInRefused(status, message)


def _line(text: str) -> str:
    return " ".join(redact_text(text).split())[:300]
