"""The listening socket of the web process, opened by the supervisor.

So a port is known to be ours before anything starts, stays ours while the web process restarts, and visitors
wait in its queue meanwhile instead of being refused.
"""

import errno
import socket

PREFERRED_PORTS = range(8000, 8020)


class PortTakenError(Exception):
    """The port that was asked for cannot be listened on; the message says why."""


def open_listener(host: str, port: int | None) -> socket.socket:
    """Listen on `port`, or without one on the first free of 8000 to 8019, else on any free port.

    Raises:
        PortTakenError: the port that was asked for is taken, or the host is not one of ours.
    """
    if port is not None:
        try:
            return _listen(host, port)
        except OSError as error:
            raise PortTakenError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    for candidate in PREFERRED_PORTS:
        try:
            return _listen(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise PortTakenError(f"cannot listen on {host}: {error.strerror or error}") from error
    return _listen(host, 0)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener
