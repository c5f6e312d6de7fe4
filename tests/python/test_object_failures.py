"""What a user reads when a store cannot be read: for each kind of failure a message that names the
URL, the cause and what to do. Each comes from the real client through a real server or proxy."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import threading

import numpy as np
import pytest
from PIL import Image

from buckets import (Proxy, answer, certificate_for, rclone_server, refusal, with_keys)
from headrace import ImageFolder, ImageList, Pack, SampleError
from headrace import transforms as T
from headrace.torch import DataLoader

SMALL = T.Compose([T.Resize((16, 16)), T.ToTensor()])
ONE = "/" "birds/train/a/03.jpg"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The port of a server of the bucket "birds"."""
    folder = tmp_path_factory.mktemp("store")
    for number in range(8):
        pixels = np.random.default_rng(number).integers(0, 255, (30, 30, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG")
        path = folder / f"birds/train/a/{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.getvalue())
    with rclone_server(folder) as port:
        yield port


@pytest.fixture
def proxy(store):
    one = Proxy(store)
    yield one
    one.close()


def opened(url):
    """Opens a folder without a fault, under a limit that is short for a busy machine."""
    for _ in range(20):
        with contextlib.suppress(OSError):
            return ImageFolder(url, SMALL, index="none")
    return ImageFolder(url, SMALL, index="none")


def epoch(proxy, fault, seconds):
    """Opens the folder, then reads it with a fault in the way of one object, for so long."""
    with with_keys(proxy.url, HEADRACE_OBJECT_TIMEOUT=seconds):
        dataset = opened("s3://birds/train")
        proxy.fault = lambda request: fault if request.target == ONE else None
        list(DataLoader(dataset, batch_size=4, num_workers=1))


AGAIN = r"\(given up after \d+ tr"
NETWORK = "check the network"
# fault of an object in the middle of an epoch: (the cause, what to do)
IN_AN_EPOCH = {
    "denied": (refusal(403, "AccessDenied"), r"access is denied \(403 AccessDenied\) with the "
               "credentials of the environment", "they need s3:GetObject"),
    "expired": (refusal(400, "ExpiredToken"), "session of the credentials of the environment has "
                "expired", "renew them"),
    "deleted": (refusal(404, "NoSuchKey"), "it was deleted after it was listed",
                "open the dataset again"),
    "replaced": (("headers", {"ETag": '"other"'}), "it was replaced after it was listed",
                 "open the dataset again"),
    "no-etag": (("headers", {"ETag": ""}), "the answer has no ETag", "ask the store itself"),
    "storm": (refusal(503, "SlowDown"), r"fewer requests \(503 SlowDown\)",
              f"read with fewer processes, or raise HEADRACE_OBJECT_TIMEOUT {AGAIN}"),
    "fails": (refusal(500, "InternalError"), r"the store fails \(500 InternalError\)",
              f"try again later {AGAIN}"),
    "hangs": ("hang", "too slow: nothing came for 125 ms", f"{NETWORK} and the server.*{AGAIN}"),
    "drips": (("drops", 0.02), "too slow", f"{NETWORK} and the server.*{AGAIN}"),
    "resets": ("reset", "connection ended before the whole answer", f"{NETWORK}.*{AGAIN}"),
    "closes": ("close", "connection ended before the whole answer", f"{NETWORK}.*{AGAIN}"),
    "cut": (("cut", 100), r"connection ended before the whole answer came \(.*bytes",
            f"{NETWORK}.*{AGAIN}"),
    "no-http": (("last", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
                "connection ended before the whole answer", f"{NETWORK}.*{AGAIN}"),
    "other-range": (answer(206, b"x" * 100, content_range="bytes 5-104/2000"),
                    "replaced|does not fit the request", "open the dataset again|check that"),
    "proxy-asks": (answer(407), r"the proxy wants to know who asks \(407\)", "no_proxy"),
}


@pytest.mark.parametrize("name", IN_AN_EPOCH)
def test_in_an_epoch(proxy, name):
    fault, cause, remedy = IN_AN_EPOCH[name]
    with pytest.raises(SampleError) as caught:
        epoch(proxy, fault, 1 if AGAIN in remedy else 60)
    message = str(caught.value)
    assert f"s3:/{ONE}" in message
    assert re.search(f"(?s){cause}.*({remedy})", message), message


@contextlib.contextmanager
def refusing_proxy(status, lines=None):
    """A proxy that makes no tunnel; gives its address. `lines` gets the first of each request."""
    def serve():
        with contextlib.suppress(OSError):
            while True:
                one, _ = listener.accept()
                with one:
                    head = one.recv(10000).decode("latin-1")
                    if lines is not None:
                        lines.append(head.partition("\r\n")[0])
                    one.sendall(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


S3 = "s3://birds/train"
# what is set and asked for: (the cause, what to do)
AT_OPENING = {
    "bucket": ("s3://nobirds/train", {}, "there is no bucket nobirds",
               "check its name, and AWS_ENDPOINT_URL"),
    "host": (S3, {"AWS_ENDPOINT_URL": "http://host.invalid"}, "the host's name is not known",
             "check the URL, AWS_ENDPOINT_URL and the network"),
    "port": (S3, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "no connection",
             r"check that the server runs \("),
    "proxy": (S3, {"http_proxy": "http://127.0.0.1:1"}, "no connection",
              "check that the server runs, and the proxy that is named by http_proxy"),
    "proxy-name": (S3, {"http_proxy": "http://host.invalid"}, "the proxy fails",
                   "check https_proxy and no_proxy"),
    "anonymous": (S3, {"AWS_NO_SIGN_REQUEST": "YES"}, "access is denied to an anonymous request",
                  "set AWS_ACCESS_KEY_ID"),
    "key": (S3, {"AWS_ACCESS_KEY_ID": "otherkeyid"}, "does not know the key of the environment",
            "check AWS_ACCESS_KEY_ID"),
    "profile": (S3, {"AWS_PROFILE": "nobody", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
                "AWS_PROFILE is nobody", "credentials|profile"),
}


@pytest.mark.parametrize("name", AT_OPENING)
def test_at_opening(proxy, name):
    url, variables, cause, remedy = AT_OPENING[name]
    if name == "anonymous":
        proxy.fault = lambda request: refusal(403, "AccessDenied")
    with with_keys(proxy.url, HEADRACE_OBJECT_TIMEOUT=2):
        os.environ.update(variables)
        with pytest.raises(OSError) as caught:
            ImageFolder(url, index="none")
    message = str(caught.value)
    assert url in message
    assert re.search(f"(?s){cause}.*({remedy})", message), message


@pytest.mark.parametrize(("status", "part"), [(407, "407"), (403, "403")])
def test_a_proxy_that_makes_no_tunnel(status, part):
    with refusing_proxy(status) as address, \
            with_keys("https://host.invalid", https_proxy=address, HEADRACE_OBJECT_TIMEOUT=2), \
            pytest.raises(OSError, match=f"the proxy fails .*{part}.*check https_proxy") as caught:
        ImageFolder("s3://birds/train", index="none")
    assert "s3://birds/train" in str(caught.value)


def test_regions_and_clocks(proxy):
    proxy.fault = lambda request: refusal(301, "PermanentRedirect")
    with with_keys(proxy.url), pytest.raises(
            OSError, match=f"cannot list {S3}.*set AWS_REGION to that of the bucket"):
        ImageFolder(S3, index="none")
    proxy.fault = lambda request: refusal(403, "RequestTimeTooSkewed")
    with with_keys(proxy.url), pytest.raises(
            OSError, match=f"cannot list {S3}.*clock is wrong.*set it"):
        ImageFolder(S3, index="none")


def test_certificates(store, tmp_path):
    both, _ = certificate_for(tmp_path)
    proxy = Proxy(store, certificate=both)
    try:
        with with_keys(proxy.url), pytest.raises(
                OSError, match=f"cannot list {S3}.*no secure connection.*AWS_CA_BUNDLE"):
            ImageFolder(S3, index="none")
        with with_keys(proxy.url), pytest.raises(
                OSError, match=f"{proxy.url}/x.hrpack.*no secure connection.*AWS_CA_BUNDLE"):
            Pack(f"{proxy.url}/x.hrpack")
    finally:
        proxy.close()


def test_a_web_server_that_denies(proxy):
    proxy.fault = lambda request: answer(403)
    url = f"{proxy.url}/x.jpg"
    with with_keys(proxy.url), pytest.raises(SampleError) as caught:
        list(DataLoader(ImageList([(url, 0)], SMALL), batch_size=1))
    assert re.search(rf"{url}.*access is denied \(403\).*s3://", str(caught.value)), caught.value


@pytest.mark.parametrize(("variables", "host"), [
    ({"AWS_REGION": "eu-west-1"}, "birds.s3.eu-west-1.amazonaws.com"),
    ({"AWS_REGION": "cn-north-1"}, "birds.s3.cn-north-1.amazonaws.com.cn"),
    ({"AWS_REGION": "eu-west-1", "AWS_S3_ADDRESSING_STYLE": "path"}, "s3.eu-west-1.amazonaws.com"),
    ({"AWS_ENDPOINT_URL": "https://store.example"}, "store.example"),
    ({"AWS_ENDPOINT_URL": "https://store.example", "AWS_S3_ADDRESSING_STYLE": "virtual"},
     "birds.store.example"),
], ids=["aws", "china", "path", "endpoint", "virtual"])
def test_which_host_is_asked(variables, host):
    """A proxy sees it, and lets nothing out of this machine."""
    lines = []
    with refusing_proxy(403, lines) as address, with_keys("https://x.example"):
        del os.environ["AWS_ENDPOINT_URL"]
        os.environ.update(variables, https_proxy=address, HEADRACE_OBJECT_TIMEOUT="0.5")
        with pytest.raises(OSError, match="the proxy fails"):
            ImageFolder(S3, index="none")
    assert set(lines) == {f"CONNECT {host}:443 HTTP/1.1"}
