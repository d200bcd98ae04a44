"""The viewer's server, without a browser: who may talk to it, how much, and eight at once."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClosedError, websocket_connect

from hydiff import io
from hydiff.cube import Cube
from hydiff.viewer.server import LARGEST
from test_view import Server

BOKEH = "bokeh"  # the subprotocol, before the token of a page


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    values = np.random.default_rng(0).random((4, 20, 24)).astype("f4")
    values[:, 5:8] = np.nan
    return io.write(Cube(values), tmp_path_factory.mktemp("serving") / "scene.tif")[0]


@pytest.fixture(scope="module")
def server(scene):
    server = Server(scene)
    yield server
    server.close()


@pytest.fixture(scope="module")
def token(server):
    """Of a page that was loaded."""
    with urlopen(server.url) as page:
        return re.search(r'"token":"([^"]+)"', page.read().decode())[1]


def talk(server, token, messages=(), *, origin=None):
    """Open the websocket of a page, listen to its first word, send all, and listen to the end.

    The first word, and the code that the connection was closed with; None where it is still open
    after a second."""
    at = urlsplit(server.url).netloc

    async def conversation():
        request = HTTPRequest(f"ws://{at}/ws", headers={"Origin": origin or f"http://{at}"})
        socket = await websocket_connect(request, subprotocols=[BOKEH, token])
        first = await asyncio.wait_for(socket.read_message(), 30)
        try:
            for message in messages:
                await socket.write_message(message, binary=isinstance(message, bytes))
            while messages and await asyncio.wait_for(socket.read_message(), 1) is not None:
                pass
        except (TimeoutError, WebSocketClosedError):
            pass
        code = socket.close_code
        socket.close()
        return first, code

    return asyncio.run(conversation())


def memory_of(process):
    """Resident bytes."""
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_a_page_is_answered(server, token):
    """What is refused to the others below."""
    first, code = talk(server, token)
    assert "ACK" in first and code is None


@pytest.mark.parametrize("kind", [str, bytes])
def test_messages_beyond_the_limit_close_the_connection(server, token, kind):
    message = "x" * (LARGEST + 1)
    first, code = talk(server, token, [message if kind is str else message.encode()])
    assert "ACK" in first and code == 1009  # too big


def test_many_large_messages_take_no_memory(server, token):
    talk(server, token, ["x" * 8 * LARGEST])
    before = memory_of(server.process)
    for _ in range(10):
        talk(server, token, ["x" * 8 * LARGEST])
    assert memory_of(server.process) < before + 16 * LARGEST


def test_a_message_of_nonsense_ends_its_connection_alone(server, token):
    for nonsense in ("{", "[" * 10_000, json.dumps({"msgid": "1", "msgtype": "PULL-DOC-REQ"})):
        talk(server, token, [nonsense, "{}", nonsense])
    first, code = talk(server, token)
    assert "ACK" in first and code is None


def test_a_websocket_of_another_page_is_refused(server, token):
    """A page elsewhere that has learnt a token still tells its own origin."""
    for origin in ("http://example.org", "null", "file://", "http://127.0.0.1:1"):
        with pytest.raises(HTTPClientError, match="403"):
            talk(server, token, origin=origin)


@pytest.mark.parametrize("token", ["", "nonsense", "e30", "../../etc/passwd"])
def test_a_websocket_without_the_token_of_a_page_is_closed(server, token):
    try:
        first, code = talk(server, token)
    except HTTPClientError as error:
        assert error.code in (400, 403)
    else:
        assert first is None and code is not None


def test_long_bodies_are_refused(server):
    at = urlsplit(server.url)
    head = f"POST / HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Length: {1 << 30}\r\n\r\n"
    with socket.create_connection((at.hostname, at.port), 10) as connection:
        connection.sendall(head.encode())
        assert b" 400 " in connection.recv(100) or connection.recv(1) == b""
    assert urlopen(server.url).status == 200


EIGHT = """
import os, sys, time
from pathlib import Path
import hydiff.viewer.server, hydiff.viewer.page
from hydiff.cli.view import view
parent = os.getpid()
for i in range(8):
    if os.fork() == 0:
        view(Path(sys.argv[1]), browser=False)
        os._exit(0)
for i in range(8):
    os.wait()
"""


def test_eight_viewers_at_once_all_answer(scene):
    """Begun at the same instant, by forks of one process: they also race for the same port."""
    from bokeh.client import pull_session

    script = [sys.executable, "-c", EIGHT, str(scene)]
    group = subprocess.Popen(script, stderr=subprocess.PIPE, text=True, process_group=0)
    told, urls = [], []
    for line in group.stderr:
        told.append(line)
        urls += re.findall(r"http://\S+", line)
        if len(urls) == 8:
            break
    try:
        assert len(set(urls)) == 8, "".join(told)
        sessions = [pull_session(url=url) for url in urls]
        assert all(session.document.roots for session in sessions)
        for session in sessions:
            session.close()
    finally:
        os.killpg(group.pid, 9)
        group.wait()
        group.stderr.close()
