"""Serve the page to this machine only: loopback address, checked origin and host, no files."""

from __future__ import annotations

import errno
import logging
import socket
import webbrowser
from collections.abc import Callable
from html import escape
from typing import Any

import panel as pn
from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import RequestHandler
from tornado.websocket import WebSocketClosedError

from hydiff.errors import BadValue

ADDRESS = "127.0.0.1"
PORT = 5006  # default; another port is chosen if it is in use
NAMES = (ADDRESS, "localhost")
LARGEST = 1 << 20  # most bytes of a message from a page: clicks and settings, never pictures


class Foreign(Matcher):
    """Matches requests that must be refused.

    These are requests for another host name, as sent by a foreign page whose name resolves to this
    machine (DNS rebinding), and requests for components by the name of a Python module, which Panel
    would import.
    """

    def __init__(self, hosts: list[str]) -> None:
        self.hosts = hosts

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        accepted = request.host.lower() in self.hosts and not request.path.startswith("/components")
        return None if accepted else {}


class Refused(RequestHandler):
    """Answers a refused request with status 403."""

    def prepare(self) -> None:
        self.set_status(403)
        self.finish("hydiff view answers to this machine only: open the address that it printed\n")


def serve(
    make: Callable[[], Any],
    title: str,
    port: int | None = None,
    *,
    browser: bool = True,
    ready: Callable[[str], Any] = print,
) -> None:
    """Serve pages made by `make` until interrupted; `ready` gets the address."""
    logging.getLogger("bokeh.server.views.ws").setLevel(logging.ERROR)  # no warning of closed tabs
    server, port, hosts = _bound(make, title, port)
    server._tornado.default_router.rules.insert(0, Rule(Foreign(hosts), Refused))
    server.io_loop.asyncio_loop.set_exception_handler(_quiet)
    server.start()
    url = f"http://{ADDRESS}:{port}/"
    ready(url)
    if browser:
        server.io_loop.add_callback(webbrowser.open, url)
    try:
        server.io_loop.start()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


def _bound(make: Callable[[], Any], title: str, wanted: int | None) -> tuple[Any, int, list[str]]:
    """Return a server bound to a port, this port, and the host names it accepts."""
    while True:
        port = free_port(wanted)
        hosts = [f"{name}:{port}" for name in NAMES]
        try:
            server = pn.serve(
                {"/": lambda: _explained(make)},
                websocket_origin=hosts,
                websocket_max_message_size=LARGEST,
                http_server_kwargs={"max_body_size": LARGEST, "max_buffer_size": 4 * LARGEST},
                address=ADDRESS,
                port=port,
                title={"/": title},
                show=False,
                start=False,
                verbose=False,
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            continue  # taken by another viewer in the meantime
        return server, port, hosts


def _quiet(loop: Any, context: dict[str, Any]) -> None:
    """Ignore the error of a tab that is closed while data are sent to it."""
    if not isinstance(context.get("exception"), WebSocketClosedError):
        loop.default_exception_handler(context)


def _explained(make: Callable[[], Any]) -> Any:
    """Return a page, or the error that prevented it as a message; never a blank page."""
    try:
        return make()
    except Exception as error:
        logging.getLogger(__name__).exception("the page could not be made")
        cause = escape(f"{type(error).__name__}: {error}")
        return pn.pane.HTML(f'<p role="alert">This scene cannot be shown: {cause}</p>')


def free_port(wanted: int | None) -> int:
    """Return the wanted port, or a free one if None; BadValue if the wanted port is in use."""
    for port in (PORT, 0) if wanted is None else (wanted,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((ADDRESS, port))
                return int(probe.getsockname()[1])
            except (OSError, OverflowError) as error:
                reason = getattr(error, "errno", None)
    why = "is in use" if reason == errno.EADDRINUSE else "cannot be taken"
    raise BadValue(f"port {wanted} {why}; give another `port=`, or none for a free one")
