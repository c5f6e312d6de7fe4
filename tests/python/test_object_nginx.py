"""Packs, tar files and lists on nginx, over HTTPS with a certificate of the test's own: HTTP/2, whole
files and ranges, and a place that serves no ranges."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import socket
import signal
import subprocess
import tarfile
import time

import numpy as np
import pytest
from PIL import Image

import headrace
from buckets import certificate_for, end_with_us, free_port, settings
from headrace import ImageFolder, ImageList, Pack, SampleError, TarDataset
from headrace import transforms as T
from headrace.torch import DataLoader

SMALL = T.Compose([T.Resize((32, 32)), T.ToTensor()])


@contextlib.contextmanager
def nginx(folder, site):
    """Serves `site` over TLS; "/whole/" is the same without ranges. Gives its URL, the file of its
    certificate, and that of its log."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("there is no nginx")
    both, one = certificate_for(folder)
    port, log = free_port(), folder / "access"
    places = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in
                     ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root; " if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"daemon off; {user}worker_processes 1; pid {folder}/pid; error_log {folder}/error; "
        "events { worker_connections 512; } http { log_format one '$server_protocol $status "
        f"$http_range'; access_log {log} one; {places} server {{ listen 127.0.0.1:{port} ssl http2; "
        f"ssl_certificate {both}; ssl_certificate_key {both}; root {site}; "
        f"location /whole/ {{ alias {site}/; max_ranges 0; }} }} }}")
    server = subprocess.Popen([program, "-e", str(folder / "error"), "-c",
                               str(folder / "nginx.conf")], stderr=subprocess.DEVNULL,
                              preexec_fn=lambda: end_with_us(signal.SIGTERM))
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if server.poll() is not None:
                pytest.skip(f"nginx does not start: {(folder / 'error').read_text()[-300:]}")
            time.sleep(0.05)
        yield f"https://127.0.0.1:{port}", one, log
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(nginx's URL, certificate and log, the folder that it serves)."""
    folder = tmp_path_factory.mktemp("site")
    for number in range(24):
        pixels = np.random.default_rng(number).integers(0, 255, (60, 60, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        path = folder / f"train/{'ab'[number % 2]}/{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.getvalue())
    headrace.pack(ImageFolder(folder / "train"), folder / "x.hrpack")
    with tarfile.open(folder / "x.tar", "w") as file:
        file.add(folder / "train/a", "a")
    (folder / "list.txt").write_text("".join(f"train/a/{n:02}.jpg\t{n}\n" for n in range(0, 24, 2)))
    with nginx(tmp_path_factory.mktemp("nginx"), folder) as (url, certificate, log):
        yield url, certificate, log, folder


def epoch(dataset, **options):
    loader = DataLoader(dataset, batch_size=8, num_workers=2, **options)
    return [hashlib.sha256(x.numpy().tobytes()).hexdigest() for x, _ in loader]


def test_the_same_as_on_a_disk(site):
    url, certificate, log, folder = site
    with settings(AWS_CA_BUNDLE=certificate):
        for shuffle in (False, True):
            assert epoch(Pack(f"{url}/x.hrpack", SMALL), shuffle=shuffle, seed=1) == \
                epoch(Pack(folder / "x.hrpack", SMALL), shuffle=shuffle, seed=1)
        assert epoch(TarDataset(f"{url}/x.tar", SMALL)) == epoch(TarDataset(folder / "x.tar", SMALL))
        assert epoch(ImageList(f"{url}/list.txt", SMALL)) == \
            epoch(ImageList(folder / "list.txt", SMALL))
    lines = [line.split(" ", 2) for line in log.read_text().splitlines()]
    assert {"206", "200"} == {status for _, status, _ in lines}
    assert "HTTP/2.0" in {protocol for protocol, _, _ in lines}
    assert all(ranges.startswith("bytes=") for _, status, ranges in lines if status == "206")


def test_refusals(site):
    url, certificate, _, _ = site
    with settings():
        with pytest.raises(OSError, match=f"{url}/x.hrpack.*no secure connection.*AWS_CA_BUNDLE"):
            Pack(f"{url}/x.hrpack")
    with settings(AWS_CA_BUNDLE=certificate):
        with pytest.raises(FileNotFoundError, match=f"{url}/y.hrpack.*no such object"):
            Pack(f"{url}/y.hrpack")
        with pytest.raises(NotImplementedError, match="whole files only"):
            TarDataset(f"{url}/whole/x.tar")
        with pytest.raises(SampleError, match=f"{url}/train/none.jpg.*no such object"):
            epoch(ImageList([(f"{url}/train/none.jpg", 0)], SMALL))
