"""Servers that cannot be trusted: credentials go to nobody but the store and their own source, and
no answer that does not fit is taken for the bytes that were asked for."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest
from PIL import Image

import headrace
from buckets import (KEY, SECRET, Proxy, answer, certificate_for, rclone_server, refusal, settings,
                     with_keys)
from headrace import ImageFolder, SampleError
from headrace import transforms as T
from headrace.torch import DataLoader
from object_store import proxy  # noqa: F401

SMALL = T.Compose([T.Resize((32, 32)), T.ToTensor()])
SAMPLES = 24


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A server of one bucket, "birds"; (its folder, its port)."""
    folder = tmp_path_factory.mktemp("store")
    for number in range(SAMPLES):
        path = folder / "birds/train" / "ab"[number % 2] / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (40, 40, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG")
        path.write_bytes(file.getvalue())
    with rclone_server(folder) as port:
        yield folder / "birds", port


@pytest.fixture
def other(store):
    one = Proxy(store[1])
    yield one
    one.close()


def read_all(dataset):
    """The digest of the samples of an epoch, and the loader."""
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    return sum(int(images.numpy().astype(np.float64).sum()) for images, _ in loader), loader


# ---- who gets credentials ----


def test_redirects_of_a_store_are_not_followed(store, proxy, other):
    """A store must not choose who gets signed requests and session tokens."""
    proxy.fault = lambda request: answer(
        307, "<Error><Code>TemporaryRedirect</Code><Endpoint>other.invalid</Endpoint></Error>",
        Location=other.url + request.target)
    with with_keys(proxy.url, AWS_SESSION_TOKEN="session"):
        with pytest.raises(OSError, match="elsewhere .307 TemporaryRedirect, to other.invalid"):
            ImageFolder("s3://birds/train", index="none")
    assert len(proxy.requests) == 1
    assert not other.requests


def test_redirects_keep_tls(store, other, tmp_path):
    """A redirect from https:// to http:// is refused; one to https:// is followed."""
    both, one = certificate_for(tmp_path)
    secure = Proxy(store[1], certificate=both)
    try:
        where = [other.url]
        secure.fault = lambda request: (answer(302, Location=f"{where[0]}/there.txt")
                                        if "list" in request.target else answer(404))
        with settings(AWS_CA_BUNDLE=one):
            with pytest.raises(OSError, match="from https:// to http://"):
                headrace.ImageList(f"{secure.url}/list.txt")
            assert not other.requests
            where[0] = secure.url
            with pytest.raises(OSError, match="no such object"):
                headrace.ImageList(f"{secure.url}/list.txt")
            where[0] += "/list"  # in circles
            with pytest.raises(OSError, match="nor in circles"):
                headrace.ImageList(f"{secure.url}/list.txt")
    finally:
        secure.close()


def test_metadata_goes_through_no_proxy(proxy, other):
    def metadata(request):
        if request.method == "PUT":
            return answer(200, "the-token")
        return answer(200, "role") if request.target.endswith("credentials/") else answer(
            200, f'{{"AccessKeyId": "{KEY}", "SecretAccessKey": "{SECRET}", "Token": "t"}}')

    proxy.fault, other.fault = metadata, lambda request: refusal(403, "AccessDenied")
    with settings(AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=proxy.url,
                  AWS_ENDPOINT_URL="http://store.invalid", http_proxy=other.url):
        with pytest.raises(OSError, match="access is denied .* metadata server"):
            ImageFolder("s3://birds/train", index="none")
    assert [one.method for one in proxy.requests] == ["PUT", "GET", "GET"]
    assert [one.key_id for one in other.requests] == [KEY]


@pytest.mark.parametrize("host", ["host.invalid", "localhost:x@host.invalid", "localhost.invalid",
                                  "127.0.0.1.invalid"])
def test_container_tokens_go_to_this_machine(proxy, host):
    with settings(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"http://{host}/keys",
                  AWS_CONTAINER_AUTHORIZATION_TOKEN="geheim", AWS_ENDPOINT_URL=proxy.url):
        with pytest.raises((OSError, ValueError), match="a token may be sent") as caught:
            ImageFolder("s3://birds/train", index="none")
    assert "geheim" not in str(caught.value)
    assert not proxy.requests


def test_container_credentials(proxy):
    proxy.fault = lambda request: None if request.is_list else answer(
        200, f'{{"AccessKeyId": "{KEY}", "SecretAccessKey": "{SECRET}", "Token": "{"t" * 5000}"}}')
    with settings(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{proxy.url}/keys",
                  AWS_CONTAINER_AUTHORIZATION_TOKEN="x" * 3000, AWS_ENDPOINT_URL=proxy.url):
        assert len(ImageFolder("s3://birds/train", index="none")) == SAMPLES
    assert {one.headers["authorization"] for one in proxy.requests if not one.is_list} \
        == {"x" * 3000}
    assert {one.headers["x-amz-security-token"] for one in proxy.requests if one.is_list} \
        == {"t" * 5000}


def test_a_silent_source_makes_nobody_anonymous(proxy):
    """The session ends and the metadata server is silent: no request goes out unsigned."""
    given = []

    def fault(request):
        if request.is_list:
            return refusal(400, "ExpiredToken")
        if request.method == "PUT":
            return answer(500) if given else answer(200, "the-token")
        if request.target.endswith("credentials/"):
            return answer(200, "role")
        given.append(request)
        return answer(200, f'{{"AccessKeyId": "{KEY}", "SecretAccessKey": "{SECRET}"}}')

    proxy.fault = fault
    with settings(AWS_EC2_METADATA_DISABLED="false", AWS_ENDPOINT_URL=proxy.url,
                  AWS_EC2_METADATA_SERVICE_ENDPOINT=proxy.url):
        with pytest.raises(OSError, match="metadata server .*gives no new ones"):
            ImageFolder("s3://birds/train", index="none")
    assert {one.key_id for one in proxy.requests if one.is_list} == {KEY}


@pytest.mark.parametrize("url", [
    "https://host.invalid/x?sig=geheim", "https://me:geheim@host.invalid/x-{0..1}",
    "s3://AKIA:ge/geheim@birds/x", "https://me:ge/geheim@host.invalid/[x",
])
@pytest.mark.parametrize("open_it", [
    headrace.Pack, headrace.TarDataset, headrace.ImageList, ImageFolder,
    lambda url: headrace.ImageList([("x.jpg", 0), (url, 1)]),
], ids=["pack", "tar", "list", "folder", "listed"])
def test_secrets_in_urls(url, open_it):
    """No way to open a URL repeats what may be a password or a signature."""
    with settings(), pytest.raises(ValueError, match="query|before an @") as caught:
        open_it(url)
    assert "geheim" not in str(caught.value)


# ---- answers that do not fit ----


def page(inside, token=""):
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return answer(200, f"<ListBucketResult><IsTruncated>{str(bool(token)).lower()}</IsTruncated>"
                  f"{more}{inside}</ListBucketResult>")


def test_a_listing_that_goes_in_circles(proxy):
    proxy.fault = lambda request: page("", "again")
    with with_keys(proxy.url), pytest.raises((OSError, ValueError), match="the same page again"):
        ImageFolder("s3://birds/train", index="none")
    assert len(proxy.requests) == 2


@pytest.mark.parametrize("prefix, key, size", [
    ("t", "train/a/1.jpg", 5),             # not below the prefix, and shorter
    ("train/a/", "train/b/1.jpg", 5),      # of another class
    ("train/a/", "t", 5),
    ("train/a/", "train/a/1.jpg", 1 << 62),
])
def test_keys_that_were_not_asked_for(proxy, prefix, key, size):
    def fault(request):
        if "delimiter" in request.target:
            return page(f"<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>")
        return page(f"<Contents><Key>{key}</Key><Size>{size}</Size>"
                    "<LastModified>9999-12-31T00:00:00Z</LastModified></Contents>")

    proxy.fault = fault
    with with_keys(proxy.url), pytest.raises((OSError, ValueError), match="is not one of S3"):
        ImageFolder("s3://birds/train", index="none")


@pytest.mark.parametrize("told", ["", "bytes 8-65543/65544", "bytes 0-9/65536",
                                  "bytes 0-99999999/100000000", "bytes 0-65535/100",
                                  "bytes 0-9223372036854775807/9223372036854775807"])
def test_ranges_that_were_not_asked_for(store, proxy, told):
    """A part counts only if the server says that it is the part that was asked for."""
    (store[0] / "big.tar").write_bytes(bytes(100000))
    proxy.fault = lambda request: (("headers", {"Content-Range": told}) if told
                                   else answer(206, bytes(65536)))
    with with_keys(proxy.url), pytest.raises(OSError, match="does not fit the request"):
        headrace.TarDataset("s3://birds/big.tar")
    assert {one.headers["range"] for one in proxy.requests} == {"bytes=0-65535"}


def test_an_answer_without_the_etag(store, proxy):
    """An object that was listed with an ETag is not read without one: it may be another version."""
    proxy.fault = lambda one: None if one.is_list else ("headers", {"ETag": ""})
    with with_keys(proxy.url), pytest.raises(SampleError, match="the answer has no ETag"):
        read_all(ImageFolder("s3://birds/train", transform=SMALL))


def test_a_list_that_names_files_of_this_machine(store, proxy):
    """A list at a URL is another one's: it does not choose files of this machine."""
    (store[0] / "list.txt").write_text("/etc/hostname\t0\n")
    with with_keys(proxy.url), pytest.raises(PermissionError, match="names a file of this machine"):
        headrace.ImageList("s3://birds/list.txt")


def test_a_change_without_an_etag(store, proxy):
    """Where a server sends no ETag, the size and the time tell that an object was replaced."""
    with tarfile.open(store[0] / "a.tar", "w") as file:
        file.add(store[0] / "train/a", "a")
    there, _ = read_all(headrace.TarDataset(str(store[0] / "a.tar"), transform=SMALL))
    old, new = "Thu, 02 Jan 2025 00:00:00 GMT", "Fri, 03 Jan 2025 00:00:00 GMT"
    proxy.fault = lambda request: ("headers", {"ETag": "", "Last-Modified": old})
    with with_keys(proxy.url):
        dataset = headrace.TarDataset("s3://birds/a.tar", transform=SMALL)
        assert read_all(dataset)[0] == there
        proxy.fault = lambda request: ("headers", {"ETag": "", "Last-Modified": new})
        with pytest.raises(SampleError, match="replaced after it was listed"):
            read_all(dataset)


def test_a_dripping_server(store, proxy):
    """An answer that comes byte by byte is never silent, and given up all the same."""
    dripped = set()

    def fault(request):
        if request.is_list or dripped:
            return None
        dripped.add(request.target)
        return ("drops", 0.05)

    there, _ = read_all(ImageFolder(str(store[0] / "train"), transform=SMALL))
    proxy.fault = fault
    with with_keys(proxy.url, HEADRACE_OBJECT_TIMEOUT=8):
        found, loader = read_all(ImageFolder("s3://birds/train", transform=SMALL))
    assert found == there
    assert loader.stats()["object_retries"] >= 1


# ---- packs of objects ----


def test_a_pack_of_objects_is_continued(store, proxy, tmp_path):
    """Objects are compared as listed with what was packed of them before the end of the last run."""
    def stop(done, total):
        if done:
            raise LookupError("enough")

    with with_keys(proxy.url):
        dataset = ImageFolder("s3://birds/train")
        with pytest.raises(LookupError):
            headrace.pack(dataset, tmp_path / "p", progress=stop, jobs=1)
        assert (tmp_path / "p.partial").exists()
        assert headrace.pack(dataset, tmp_path / "p")["samples"] == SAMPLES
        headrace.pack(dataset, tmp_path / "whole")
    assert (tmp_path / "p").read_bytes() == (tmp_path / "whole").read_bytes()
