"""Signatures as AWS's own signer (botocore) makes them: each request that reaches a real server, for
pages of listings, objects with odd names, ranges and parts of uploads, is signed again and compared.
Servers do not show this: rclone takes requests that AWS refuses, and moto refuses AWS's."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from PIL import Image

import headrace
from buckets import KEY, SECRET, Proxy, rclone_server, with_keys
from headrace import ImageFolder
from headrace import transforms as T
from headrace.torch import DataLoader

pytest.importorskip("botocore", reason="there is no botocore to compare with (pip install botocore)")

ODD = ["a b", "c=d", "e+f", "g%20h", "i&j", "k'l", "m,n", "Füße", "~p", "q(r)", "s;t", "u@v", "x!y",
       "z*", "$1", "o:o", "[b]"]
SMALL = T.Compose([T.Resize((32, 32)), T.ToTensor()])


def picture(number):
    pixels = np.random.default_rng(number).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The folder of a bucket, and a proxy before its server."""
    folder = tmp_path_factory.mktemp("store")
    for number, name in enumerate(ODD):
        path = folder / f"birds/train/{name}/{name}.jpg"
        path.parent.mkdir(parents=True)
        path.write_bytes(picture(number))
    with rclone_server(folder) as port:
        proxy = Proxy(port)
        yield folder / "birds", proxy
        proxy.close()


def signed_again(proxy, request):
    """The signature that botocore gives a request; it is signed for the same headers."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    text = request.headers["authorization"]
    names = text.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    region = text.partition("Credential=")[2].split("/")[2]
    again = AWSRequest(method=request.method, url=f"{proxy.url}{request.target}",
                       headers={name: request.headers[name] for name in names})
    again.context["timestamp"] = request.headers["x-amz-date"]
    signer = S3SigV4Auth(Credentials(KEY, SECRET), "s3", region)
    return signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)


def compare(proxy):
    """Compares all requests since the last time. Returns them."""
    requests = list(proxy.requests)
    proxy.requests.clear()
    for request in requests:
        made = request.headers["authorization"].partition("Signature=")[2]
        assert made == signed_again(proxy, request), f"{request.method} {request.target}"
        names = request.headers["authorization"].partition("SignedHeaders=")[2]
        assert {"host", "x-amz-content-sha256", "x-amz-date"} <= set(names.partition(",")[0].split(";"))
    return requests


def epoch(dataset):
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    return [hashlib.sha256(x.numpy().tobytes()).hexdigest() for x, _ in loader]


def test_folder_with_odd_names(store):
    folder, proxy = store
    with with_keys(proxy.url):
        dataset = ImageFolder("s3://birds/train", SMALL, index="none")
        assert epoch(dataset) == epoch(ImageFolder(str(folder / "train"), SMALL))
    requests = compare(proxy)
    assert sum(one.is_list for one in requests) > 1
    assert sum(not one.is_list for one in requests) == len(ODD)


def test_pages_and_tokens(store):
    folder, proxy = store
    many = folder / "many/x y"
    many.mkdir(parents=True)
    for number in range(1001):
        (many / f"{number}.jpg").hardlink_to(folder / "train/a b/a b.jpg")
    with with_keys(proxy.url):
        assert len(ImageFolder("s3://birds/many", index="none")) == 1001
    assert any("continuation-token" in one.target for one in compare(proxy))


def test_uploads_and_ranges(store):
    folder, proxy = store
    there = ImageFolder(str(folder / "train"))
    with with_keys(proxy.url):
        headrace.pack(there, "s3://birds/new/odd =+% name.hrpack")
        found = epoch(headrace.Pack("s3://birds/new/odd =+% name.hrpack", SMALL))
    assert found == epoch(ImageFolder(str(folder / "train"), SMALL))
    requests = compare(proxy)
    assert {one.method for one in requests} >= {"POST", "PUT", "GET"}
    assert any("range" in one.headers for one in requests)
    assert any("uploads" in one.target for one in requests)
