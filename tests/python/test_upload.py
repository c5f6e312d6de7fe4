"""Packs are written to buckets: the very file that a disk would get, from a real server, after kills
and through faults, and never one that is not whole."""

from __future__ import annotations

import hashlib
import io
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import headrace
from buckets import Proxy, rclone_server, refusal, with_keys
from headrace import ImageFolder

SAMPLES, PART = 60, 64 << 10
COMMAND = [sys.executable, "-m", "headrace"]
KEY = "s3://birds/out/p.hrpack"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A server of the bucket "birds", a folder of images, and the pack of them on a disk."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "store/birds").mkdir(parents=True)
    for number in range(SAMPLES):
        pixels = np.random.default_rng(number).integers(0, 255, (80, 80, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        path = folder / f"train/{number % 3}/{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.getvalue())
    headrace.pack(folder / "train", folder / "expected")
    with rclone_server(folder / "store") as port:
        yield folder, port


@pytest.fixture
def proxy(store):
    one = Proxy(store[1])
    yield one
    one.close()
    for path in (store[0] / "store/birds").rglob("*.hrpack"):
        path.unlink()


def writes(proxy):
    """The numbers of the parts that were sent, in order."""
    return [int(one.target.partition("partNumber=")[2].partition("&")[0])
            for one in proxy.requests if one.method == "PUT"]


def is_the_pack(store):
    there = store[0] / "store/birds/out/p.hrpack"
    return there.read_bytes() == (store[0] / "expected").read_bytes()


def pack(store, tmp_path, **options):
    options.setdefault("part_bytes", PART)
    return headrace.pack(ImageFolder(store[0] / "train"), KEY, staging=tmp_path, **options)


def test_the_same_file(store, proxy, tmp_path):
    with with_keys(proxy.url):
        result = pack(store, tmp_path)
        parts = -(-result["bytes"] // PART)
        assert result["samples"] == SAMPLES and parts > 5
        assert sorted(writes(proxy)) == list(range(1, parts + 1))  # each once, the index last
        assert is_the_pack(store)
        assert list(tmp_path.iterdir()) == []
        assert headrace.verify_pack(KEY) == []
        with pytest.raises(FileExistsError, match="overwrite"):
            pack(store, tmp_path)
        assert pack(store, tmp_path, overwrite=True)["continued"] == 0
    # each part is signed with its digest, and names its MD5
    for one in proxy.requests:
        if one.method == "PUT":
            assert one.headers["x-amz-content-sha256"] == hashlib.sha256(one.body).hexdigest()
            assert one.headers["content-md5"]


def test_one_part_of_the_usual_size(store, proxy, tmp_path):
    with with_keys(proxy.url):
        pack(store, tmp_path, part_bytes=0)
    assert writes(proxy) == [1] and is_the_pack(store)


FAULTS = {
    "slow down": refusal(503, "SlowDown"),
    "error": refusal(500, "InternalError"),
    "reset": "reset",
    "close": "close",
    "damaged": refusal(400, "BadDigest"),
    "cut answer": ("cut", 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_passing_faults(store, proxy, tmp_path, fault):
    """Each request that writes fails once; that which completes fails when it has succeeded, too."""
    hit = set()

    def first(request):
        what = request.method, request.target
        if request.method == "GET" or what in hit:
            return None
        hit.add(what)
        return FAULTS[fault]

    proxy.fault = first
    with with_keys(proxy.url):
        pack(store, tmp_path)
    assert is_the_pack(store) and len(hit) > 5


def test_an_error_after_200(store, proxy, tmp_path):
    """A store that takes long to complete an object tells its error in an answer of 200."""
    hit = []

    def late(request):
        if request.method == "POST" and "uploadId" in request.target and not hit:
            hit.append(request)
            return refusal(200, "InternalError")
        return None

    proxy.fault = late
    with with_keys(proxy.url):
        pack(store, tmp_path)
    assert is_the_pack(store) and hit


def test_damage_on_the_way(store, proxy, tmp_path):
    """A store that says that it has other bytes is not believed."""
    proxy.fault = lambda one: ("headers", {"ETag": f'"{"0" * 32}"'}) if one.method == "PUT" else None
    with with_keys(proxy.url):
        with pytest.raises(OSError, match="got other bytes of part"):
            pack(store, tmp_path)
        proxy.fault = lambda one: None
        pack(store, tmp_path)
    assert is_the_pack(store)


def test_denied(store, proxy, tmp_path):
    proxy.fault = lambda one: refusal(403, "AccessDenied") if one.method != "GET" else None
    with with_keys(proxy.url), pytest.raises(PermissionError, match="s3:PutObject"):
        pack(store, tmp_path)


@pytest.mark.parametrize("at", [1, 4, "complete"])
def test_kill(store, proxy, tmp_path, at):
    """A run that is killed is continued: parts that the store has are not sent again."""
    stopped = []

    def hang(request):
        if at == "complete":
            is_it = request.method == "POST" and "uploadId" in request.target
        else:
            is_it = request.method == "PUT" and len(set(writes(proxy))) > at
        if is_it:
            stopped.append(request)
            child.send_signal(signal.SIGKILL)
        return "hang" if is_it else None

    proxy.fault = hang
    code = (f"import headrace; headrace.pack({str(store[0] / 'train')!r}, {KEY!r}, "
            f"staging={str(tmp_path)!r}, part_bytes={PART}, jobs=1)")
    with with_keys(proxy.url):
        child = subprocess.Popen([sys.executable, "-c", code])
        assert child.wait() == -signal.SIGKILL and stopped
        assert len(list(tmp_path.iterdir())) == 2
        noted = [line.split()[0] for line in next(tmp_path.glob("*.upload")).read_text()
                 .splitlines()[3:]]
        proxy.fault = lambda one: None
        proxy.requests.clear()
        result = pack(store, tmp_path)
    assert is_the_pack(store) and list(tmp_path.iterdir()) == []
    assert result["continued"] > 0
    assert not set(writes(proxy)) & {int(one) for one in noted}


def test_completed_and_killed(store, proxy, tmp_path):
    """The store completes the object, and the answer is lost with the program."""
    def stop(request):
        if request.method == "POST" and "uploadId" in request.target:
            return ("cut", 0)
        return refusal(403, "AccessDenied") if seen(request) else None

    def seen(request):
        return request.method == "GET" and any("uploadId" in one.target for one in proxy.requests
                                               if one.method == "POST")

    proxy.fault = stop
    with with_keys(proxy.url, HEADRACE_OBJECT_TIMEOUT=3):
        with pytest.raises(OSError):
            pack(store, tmp_path)
        assert is_the_pack(store) and len(list(tmp_path.iterdir())) == 2
    proxy.fault = lambda one: None
    proxy.requests.clear()
    with with_keys(proxy.url):
        assert pack(store, tmp_path)["continued"] == SAMPLES
    assert writes(proxy) == [] and list(tmp_path.iterdir()) == []


def test_an_upload_that_is_gone(store, proxy, tmp_path):
    """An upload that the store has aborted is not continued; restart aborts what is left of it."""
    def fail(request):
        return refusal(403, "AccessDenied") if len(writes(proxy)) > 4 else None

    proxy.fault = fail
    with with_keys(proxy.url):
        with pytest.raises(PermissionError):
            pack(store, tmp_path, jobs=1)
        state = next(tmp_path.glob("*.upload"))
        upload = state.read_text().splitlines()[2]
        assert len(state.read_text().splitlines()) > 3
        proxy.fault = lambda one: refusal(404, "NoSuchUpload") if "uploadId" in one.target else None
        with pytest.raises(OSError, match="restart it"):
            pack(store, tmp_path)
        proxy.fault = lambda one: None
        proxy.requests.clear()
        pack(store, tmp_path, restart=True)
    assert is_the_pack(store)
    aborted = [one for one in proxy.requests if one.method == "DELETE"]
    assert len(aborted) == 1 and upload in aborted[0].target


def test_command(store, proxy, tmp_path):
    with with_keys(proxy.url):
        told = subprocess.run([*COMMAND, "pack", store[0] / "train", KEY, "--staging",
                               tmp_path, "--no-progress"], capture_output=True, text=True,
                              check=True)
        assert f"{SAMPLES} " in told.stdout
        again = subprocess.run([*COMMAND, "pack", store[0] / "train", KEY],
                               capture_output=True, text=True, check=False)
    assert is_the_pack(store)
    assert again.returncode == 3 and "--force replaces it" in again.stderr


@pytest.mark.parametrize("url, part", [
    ("https://localhost/p.hrpack", "cannot be written to"),
    ("s3://birds", "cannot be written to"),
])
def test_what_is_refused(store, tmp_path, url, part):
    with with_keys("http://127.0.0.1:1"), pytest.raises(NotImplementedError, match=part):
        headrace.pack(store[0] / "train", url, staging=tmp_path)
