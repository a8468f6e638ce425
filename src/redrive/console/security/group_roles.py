"""Roles by group, for users whom a proxy or a provider has authenticated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias, get_args

from ...ops.sign_in.rights import Rights
from .credentials import Role
from .user import User

GroupRoles: TypeAlias = Mapping[str, Role | Rights]
"""The role of a group, or the rights of its operators. The first group that a user has counts."""


def check_roles(owner: str, roles: object, role: object, /) -> None:
    """Raise TypeError or ValueError if the roles of groups are not valid.

    Args:
        owner: Name of the option, for the message.
        roles: The roles by group.
        role: The role of users without a group. None: no access.
    """
    if not isinstance(roles, Mapping):
        raise TypeError(f'{owner}: roles= must be a dict such as {{"sre": "operator"}}')
    known = get_args(Role)
    for group, value in roles.items():
        if not isinstance(group, str) or not group:
            raise TypeError(f"{owner}: roles= has the group {group!r}; use text")
        if not isinstance(value, Rights) and value not in known:
            raise ValueError(
                f"{owner}: roles= has {value!r} for {group!r}; use viewer, operator or Rights(...)"
            )
    if role is not None and role not in known:
        raise ValueError(f"{owner}: invalid role {role!r}; use viewer, operator or None")


def user_of(
    name: str, groups: Collection[str], roles: GroupRoles, role: Role | None, /
) -> User | None:
    """Return the user with the role of the first matching group. None: no access.

    Args:
        name: Name of the user.
        groups: Groups of the user.
        roles: The roles by group.
        role: The role without a matching group.

    Raises:
        ValueError: The name is not valid.
    """
    for group, value in roles.items():
        if group in groups:
            if isinstance(value, Rights):
                return User(name, "operator", value)
            return User(name, value)
    return None if role is None else User(name, role)


def parse_roles(option: str, entries: Iterable[str], /) -> dict[str, Role | Rights]:
    """Read roles such as `sre=operator` from the settings. ValueError: an entry is not valid."""
    roles: dict[str, Role | Rights] = {}
    for entry in entries:
        group, separator, role = entry.rpartition("=")
        if not separator or not group.strip() or role.strip() not in get_args(Role):
            raise ValueError(f"{option}: invalid entry {entry!r}; use sre=operator or all=viewer")
        roles[group.strip()] = "operator" if role.strip() == "operator" else "viewer"
    return roles
