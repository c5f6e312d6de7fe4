"""A second, strict server: OpenStack Swift checks every signature and all parts of an upload, as
AWS does. Listings, odd names, whole objects, ranges and packs that are sent in parts must be right
for it as well."""

from __future__ import annotations

import hashlib
import io
import tarfile

import numpy as np
import pytest
from PIL import Image

import headrace
from buckets import settings
from headrace import ImageFolder, ImageList, Pack, TarDataset
from headrace import transforms as T
from headrace.torch import DataLoader
from swift_store import KEY, PAGE, PART, REGION, SECRET, swift_server

pytestmark = pytest.mark.long
ODD = ["a b", "c=d", "e+f", "g%20h", "i&j", "k'l", "m,n", "Füße", "~p", "q(r)", "s;t", "u@v",
       "x!y", "z*", "$1", "o:o", "[b]"]
SMALL = T.Compose([T.Resize((32, 32)), T.ToTensor()])


def picture(number):
    pixels = np.random.default_rng(number).integers(0, 255, (60, 60, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """(Swift, a folder with what its bucket "birds" holds)."""
    here = tmp_path_factory.mktemp("here")
    with swift_server(tmp_path_factory.mktemp("swift")) as swift:
        swift.put("birds")
        for number, name in enumerate(f"train/{c}/{c}{n}.jpg" for c in ODD for n in range(3)):
            path = here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(number))
            swift.put(f"birds/{name}", path.read_bytes())
        yield swift, here


def keys(store, **more):
    return settings(**{"AWS_ENDPOINT_URL": store[0].url, "AWS_REGION": REGION,
                       "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, **more})


def epoch(dataset):
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    return [hashlib.sha256(x.numpy().tobytes()).hexdigest() for x, _ in loader]


def test_folder(store):
    """Odd names, in pages of 20, with the store's own tokens between them."""
    there = ImageFolder(str(store[1] / "train"), SMALL)
    with keys(store):
        found = ImageFolder("s3://birds/train", SMALL)
        assert len(there) > 2 * PAGE
        assert found.classes == there.classes == sorted(ODD, key=str.encode)
        assert found.targets == there.targets
        assert epoch(found) == epoch(there)
        assert len(ImageFolder("s3://birds/train")) == len(there)  # by its index


def test_lists_and_ranges(store):
    """A tar file and a pack, of which only parts are read, and a list."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as file:
        file.add(store[1] / "train" / ODD[0], "c")
    (store[1] / "x.tar").write_bytes(tar.getvalue())
    store[0].put("birds/x.tar", tar.getvalue())
    names = [f"train/{ODD[0]}/{ODD[0]}{n}.jpg" for n in range(3)]
    there = epoch(ImageList([(str(store[1] / name), 0) for name in names], SMALL))
    with keys(store):
        assert epoch(TarDataset("s3://birds/x.tar", SMALL)) == \
            epoch(TarDataset(str(store[1] / "x.tar"), SMALL))
        assert epoch(ImageList([(f"s3://birds/{name}", 0) for name in names], SMALL)) == there


def test_a_pack_in_parts(store, tmp_path):
    """Swift takes none but the last below a size, compares each with its digests, and tells the
    ETag of the whole."""
    here = ImageFolder(store[1] / "train")
    headrace.pack(here, tmp_path / "here.hrpack")
    whole = (tmp_path / "here.hrpack").read_bytes()
    with keys(store):
        made = headrace.pack(here, "s3://birds/a b/p=1.hrpack", staging=tmp_path, part_bytes=PART)
        assert made["bytes"] == len(whole) > 2 * PART
        assert store[0].ask("GET", "birds/a b/p=1.hrpack") == whole
        assert epoch(Pack("s3://birds/a b/p=1.hrpack", SMALL)) == \
            epoch(Pack(tmp_path / "here.hrpack", SMALL))
        with pytest.raises(FileExistsError):
            headrace.pack(here, "s3://birds/a b/p=1.hrpack", staging=tmp_path, part_bytes=PART)


@pytest.mark.parametrize(("url", "variables", "message"), [
    ("s3://birds/train", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "the secret key of the environment"),
    ("s3://birds/train", {"AWS_ACCESS_KEY_ID": "birds:nobody"}, "is not that of its key id"),
    ("s3://nobirds/train", {}, "there is no bucket nobirds"),
], ids=["secret", "key", "bucket"])
def test_refusals(store, url, variables, message):
    with keys(store, **variables), pytest.raises(OSError, match=message) as caught:
        ImageFolder(url, index="none")
    assert url in str(caught.value)


def test_region(store):
    """A store that is in another region than the one that was named says so."""
    with keys(store, AWS_REGION="eu-west-9"):
        assert len(ImageFolder("s3://birds/train", index="none")) == 3 * len(ODD)
