"""The viewer's server, without a browser: who may talk to it, how much, and four at once."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest

from hydiff import io
from hydiff.cube import Cube
from hydiff.viewer.server import LARGEST
from test_view import Server, upgrade

CLOSE = 8  # the kind of a frame that ends a connection
TOO_BIG = 1009  # the code in it for a message that is


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    values = np.random.default_rng(0).random((4, 20, 24)).astype("f4")
    values[:, 5:8] = np.nan
    return io.write(Cube(values), tmp_path_factory.mktemp("serving") / "scene.tif")[0]


@pytest.fixture(scope="module")
def server(scene):
    server = Server(scene)
    yield server
    try:
        server.close()
    except AssertionError as complaint:  # of output to stderr, where nonsense goes
        assert "JSONDecodeError" in str(complaint)


@pytest.fixture(scope="module")
def token(server):
    """Of a page that was loaded."""
    with urlopen(server.url) as page:
        return re.search(r'"token":"([^"]+)"', page.read().decode())[1]


def frame(message):
    """A message as a client sends it: masked, by zeros."""
    data = message.encode() if isinstance(message, str) else message
    kind = 0x81 if isinstance(message, str) else 0x82
    return bytes([kind, 0x80 | 127]) + len(data).to_bytes(8, "big") + bytes(4) + data


def heard(stream):
    """The kind and the content of the server's next frame; a connection that ends is a close."""
    start = stream.read(2)
    if len(start) < 2:
        return CLOSE, b""
    length = start[1]
    if length > 125:
        length = int.from_bytes(stream.read(2 if length == 126 else 8), "big")
    return start[0] & 15, stream.read(length)


def talk(server, token, messages=(), *, origin=None):
    """Open the websocket of a page, listen to its first word, send all, and listen to the end.

    The status of the answer, the first word, and the code that the connection was closed with;
    None where it is still open after a second."""
    at = urlsplit(server.url)
    request = upgrade(at.netloc, origin or f"http://{at.netloc}") + f", {token}"
    with socket.create_connection((at.hostname, at.port), 30) as connection:
        connection.sendall(request.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        stream = connection.makefile("rb")
        status = int(stream.readline().split()[1])
        while stream.readline().strip():
            pass
        if status != 101:
            return status, "", None
        kind, first = heard(stream)
        word = "" if kind == CLOSE else first.decode()
        connection.settimeout(1)
        try:
            for message in messages:
                connection.sendall(frame(message))
            while kind != CLOSE and messages:
                kind, first = heard(stream)
        except TimeoutError:
            return status, word, None
        except ConnectionError:  # it was closed while more came
            return status, word, 0
        return status, word, int.from_bytes(first[:2], "big") if kind == CLOSE else None


def memory_of(process):
    """Resident bytes."""
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_a_page_is_answered(server, token):
    """What is refused to the others below."""
    status, word, code = talk(server, token)
    assert status == 101 and "ACK" in word and code is None


@pytest.mark.parametrize("message", ["x" * (LARGEST + 1), b"x" * (LARGEST + 1)])
def test_messages_beyond_the_limit_close_the_connection(server, token, message):
    _, word, code = talk(server, token, [message])
    assert "ACK" in word and code in (TOO_BIG, 0)


def test_many_large_messages_take_no_memory(server, token):
    before = memory_of(server.process)
    for _ in range(20):
        assert talk(server, token, ["x" * 16 * LARGEST])[2] is not None
    assert memory_of(server.process) < before + 32 * LARGEST


def test_a_message_of_nonsense_ends_no_other_connection(server, token):
    for nonsense in ("{", "[" * 10_000, b"\0"):
        talk(server, token, [nonsense, "{}", nonsense])
    assert "ACK" in talk(server, token)[1]


def test_a_websocket_of_another_page_is_refused(server, token):
    """A page elsewhere that has learnt a token still tells its own origin."""
    for origin in ("http://example.org", "null", "file://", "http://127.0.0.1:1"):
        assert talk(server, token, origin=origin)[0] == 403


@pytest.mark.parametrize("made_up", ["nonsense", "e30", "..%2f..%2fetc%2fpasswd"])
def test_a_websocket_without_the_token_of_a_page_is_closed(server, made_up):
    status, word, _ = talk(server, made_up)
    assert status in (400, 403) or not word


def test_long_bodies_are_refused(server):
    at = urlsplit(server.url)
    head = f"POST / HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Length: {1 << 30}\r\n\r\n"
    with socket.create_connection((at.hostname, at.port), 10) as connection:
        connection.sendall(head.encode())
        assert b" 400 " in connection.recv(100) or connection.recv(1) == b""
    assert urlopen(server.url).status == 200


FOUR = """
import os, signal, sys
from pathlib import Path
import hydiff.viewer.server, hydiff.viewer.page
from hydiff.cli.view import view
viewers = []
for i in range(4):
    viewers.append(os.fork())
    if viewers[-1] == 0:
        view(Path(sys.argv[1]), browser=False)
os.wait()
print("one has ended", file=sys.stderr)
"""


def test_four_viewers_at_once_all_answer(scene):
    """Begun at the same instant, as forks of one process, so that they race for the same port."""
    script = [sys.executable, "-c", FOUR, str(scene)]
    group = subprocess.Popen(script, stderr=subprocess.PIPE, text=True, process_group=0)
    lines, urls = "", []
    try:
        while len(urls) < 4 and "one has ended" not in lines:
            lines += group.stderr.readline()
            urls = re.findall(r"http://\S+", lines)
        assert len(set(urls)) == 4, lines
        for url in urls:  # no page, which takes a second; benchmarks/viewers.py opens them
            with urlopen(url + "static/js/bokeh.min.js") as reply:
                assert reply.status == 200
    finally:
        os.killpg(group.pid, signal.SIGKILL)
        group.wait()
        group.stderr.close()
