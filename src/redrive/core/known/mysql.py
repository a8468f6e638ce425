"""MySQL and MariaDB: pymysql (and aiomysql), asyncmy, mysqlclient, mysql-connector. By the server's or the client's code."""

from __future__ import annotations

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .look import NEVER_SENT, TIMEOUT, Entry, Look, read, whole

TOO_MANY = Fault("throttled", sent=False)
CODES: dict[int, Fault] = {
    **dict.fromkeys((2002, 2003, 2005), NEVER_SENT),
    **dict.fromkeys((1040, 1203, 1226), TOO_MANY),
    # Lost connections, a server that shuts down or is read-only after a failover, locks and deadlocks.
    **dict.fromkeys((2006, 2013, 2055, 1053, 1079, 1927, 4031), TRANSIENT),
    **dict.fromkeys((1152, 1154, 1155, 1156, 1158, 1159, 1160, 1161, 1184), TRANSIENT),
    **dict.fromkeys((1047, 1290, 1792, 1836), TRANSIENT),
    **dict.fromkeys((1205, 1206, 1213, 1614, 1637, 3572), TRANSIENT),
    **dict.fromkeys((1969, 3024), TIMEOUT),
    # No permission, no such database, a host that was blocked, a packet that is too large.
    **dict.fromkeys((1044, 1045, 1049, 1129, 1130, 1142, 1143, 1153, 1698), PERMANENT),
    0: NEVER_SENT,
}
"""0: the connection object was closed before."""


def _by_code(error: Exception, look: Look) -> Fault:
    code = whole(read(error, "errno"))
    if code is None:
        args = read(error, "args")
        code = whole(args[0]) if isinstance(args, tuple) and args else None
    return UNKNOWN if code is None else CODES.get(code, UNKNOWN)


_ERRORS: dict[str, Entry] = {
    "Error": _by_code,
    "ProgrammingError": PERMANENT,
    "IntegrityError": PERMANENT,
    "DataError": PERMANENT,
    "NotSupportedError": PERMANENT,
}
KNOWN: dict[str, Entry] = {
    f"{library}.{name}": entry for library in ("pymysql", "asyncmy", "MySQLdb", "mysql") for name, entry in _ERRORS.items()
}
