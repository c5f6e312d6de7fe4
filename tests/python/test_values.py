"""Values in CachedDataset: every kind comes back unchanged, and damage is reported as such."""

import collections
import datetime
import struct
import threading

import numpy as np
import pytest
import torch
from PIL import Image

from headrace._values import Damaged, Unkept, decode, encode

RNG = np.random.default_rng(4)


def pack(value):
    return b"".join(encode(value))


def same(a, b):
    """Equal in type, shape, element type and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, Image.Image):
        return a == b and a.info == b.info
    return a == b


def raw(tensor):
    flat = tensor.resolve_conj().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


PLAIN = [
    *(None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**200)),
    *(1.5, float("nan"), float("-inf"), -0.0, 1 + 2j),
    *("", "h\u00e9", "\ud800", "x" * 5000),
    *(b"", b"abc", bytes(range(256)), b"y" * 257, bytearray(b"z"), bytearray(999)),
    *((), [], {}, (1, [2, {"a": None, 3: b"q", True: (), b"k": [[]]}])),
]

NUMPY = [
    *(np.float32(3), np.int64(4), np.bool_(True), np.str_("abc"), np.bytes_(b"ab")),
    *(np.datetime64("2020-01-01"), np.timedelta64(5, "s"), np.complex64(1j)),
    *(RNG.integers(0, 2, (3, 4)).astype(code) for code in "?bBhHiIlLqQefdgFDG"),
    *(np.zeros((0, 3)), np.array(5), np.arange(10)[::2], np.arange(4).astype(">i4")),
    *(np.asfortranarray(RNG.random((3, 4, 5))), RNG.random((4, 6)).T[1:, ::2]),
    *(np.array(["ab", "c"]), np.array([b"ab"]), np.array(["2020"], "M8[D]"), np.array([""])),
]

TENSORS = [
    *(
        torch.arange(6).reshape(2, 3).to(dtype)
        for dtype in (
            *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
            *(torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bfloat16),
            *(torch.float32, torch.float64, torch.complex64, torch.complex128),
            *(torch.float8_e4m3fn, torch.float8_e5m2),
        )
    ),
    *(torch.tensor(3.0), torch.empty(0, 4), torch.arange(10)[::3], torch.ones(2, 3).t()),
    torch.tensor([1 + 2j, 3 - 1j]).conj(),
    torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last),
]

MODES = (
    "1 L P LA La PA I;16 I;16B I;16L RGB YCbCr LAB HSV RGBA RGBX RGBa CMYK I F".split()
)


def image(mode):
    out = Image.new(mode, (13, 7))
    out.frombytes(RNG.integers(0, 255, len(out.tobytes()), dtype=np.uint8).tobytes())
    if mode in ("P", "PA"):
        out.putpalette(RNG.integers(0, 255, 768, dtype=np.uint8).tobytes())
    out.info = {"dpi": (72, 72), "transparency": 3, "exif": b"abc"}
    return out


EVERYTHING = {
    "plain": PLAIN,
    "numpy": tuple(NUMPY),
    "torch": TENSORS,
    "images": [image(mode) for mode in MODES],
}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("value", PLAIN + NUMPY + TENSORS, ids=lambda v: type(v).__name__)
def test_comes_back_as_it_was(value, copy):
    assert same(decode(pack(value), copy), value)


@pytest.mark.parametrize("mode", MODES)
def test_images(mode):
    value = image(mode)
    assert same(decode(pack(value)), value)
    value.info["odd"] = object()  # cannot be stored, and pixels do not depend on it
    assert "odd" not in decode(pack(value)).info


def test_an_opened_image(folder):
    path = next(folder.glob("*/*.jpg"))
    with Image.open(path) as opened:
        kept = decode(pack(opened))
    with Image.open(path) as opened:
        assert type(kept) is Image.Image
        assert kept.tobytes() == opened.tobytes() and kept.size == opened.size


@pytest.mark.parametrize("copy", [True, False])
def test_everything_together(copy):
    assert same(decode(pack(EVERYTHING), copy), EVERYTHING)


def test_tv_tensors(torchvision):
    from torchvision import tv_tensors

    for cls in (tv_tensors.Image, tv_tensors.Mask, tv_tensors.Video):
        value = cls(torch.arange(24, dtype=torch.uint8).reshape(2, 3, 2, 2))
        assert same(decode(pack(value)), value)


@pytest.mark.parametrize("copy", [True, False])
def test_boxes_and_points_keep_their_canvas(torchvision, copy):
    from torchvision import tv_tensors

    for corners in (torch.arange(8.0).reshape(2, 4), torch.zeros(0, 4), torch.arange(4).reshape(1, 4)):
        boxes = tv_tensors.BoundingBoxes(corners, format="CXCYWH", canvas_size=(9, 7))
        _, again = decode(pack((1, boxes)), copy)
        assert type(again) is tv_tensors.BoundingBoxes and torch.equal(again, boxes)
        assert again.dtype == boxes.dtype and again.canvas_size == (9, 7)
        assert again.format == boxes.format
    points = tv_tensors.KeyPoints(torch.arange(12.0).reshape(2, 3, 2), canvas_size=(9, 7))
    again = decode(pack({"points": points}), copy)["points"]
    assert type(again) is tv_tensors.KeyPoints and torch.equal(again, points)
    assert again.canvas_size == (9, 7)
    data = bytearray(pack(boxes))
    for change in (b"CXCYWX", b"CXXYWH"):
        with pytest.raises(Damaged):
            decode(bytes(data).replace(b"CXCYWH", change))


def test_copies_are_the_callers_own():
    data = pack((np.arange(5), torch.arange(5), np.asfortranarray(np.ones((2, 3)))))
    array, tensor, fortran = decode(data)
    for value in (array, tensor, fortran):
        value[:] = 7
    assert fortran.flags.f_contiguous
    assert same(decode(data)[0], np.arange(5)) and same(decode(data)[1], torch.arange(5))


def test_views_are_in_place():
    data = bytearray(pack((np.arange(500), torch.arange(500))))
    array, tensor = decode(data, copy=False)
    assert not array.flags.writeable
    where = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    assert where < tensor.data_ptr() < where + len(data)
    assert (tensor.data_ptr() - where) % 64 == 0
    del data
    assert tensor.sum() == array.sum() == 124750  # each keeps the bytes alive


def test_what_is_encoded_refers_to_the_value():
    array = np.zeros(1000)
    pieces = encode(array)
    array[3] = 5
    assert decode(b"".join(pieces))[3] == 5


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def looped():
    value = []
    value.append(value)
    return value


class Label(int):
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (datetime.datetime(2020, 1, 1), r"^the sample: datetime\.datetime cannot be kept"),
        ((1, {"target": [0, {1, 2}]}), r"^\[1\]\['target'\]\[1\]: set cannot be kept"),
        (collections.namedtuple("Pair", "a b")(1, 2), "Pair cannot be kept"),
        (collections.OrderedDict(a=1), "OrderedDict"),
        ({1.5: 2}, "a key of type float"),
        ({(1, 2): 2}, "a key of type tuple"),
        (Label(3), "Label cannot be kept"),
        (np.array([object()]), "NumPy array of type object"),
        (np.zeros(2, [("a", "i4"), ("b", "f8")]), "NumPy array of type"),
        (np.ma.array([1, 2], mask=[0, 1]), "MaskedArray"),
        (torch.ones(2, requires_grad=True), "gradient"),
        (torch.nn.Parameter(torch.ones(2)), "Parameter"),
        (torch.eye(3).to_sparse(), "layout torch.sparse_coo"),
        (torch.empty(3, device="meta"), "a tensor on meta"),
        (threading.Lock(), "lock cannot be kept"),
        (nested(100), "levels deep"),
        (looped(), "levels deep"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_kept(value, words):
    with pytest.raises(Unkept, match=words):
        encode(value)


def test_the_format_stays():
    """Other versions of the package read the same segments: a change needs another header."""
    data = pack((np.arange(3, dtype="<i2"), -5, "ab"))
    tree = b"(\x03\0\0\0" + b"a\x03<i2\x01" + struct.pack("<Q", 3)
    tree += b"i" + struct.pack("<q", -5) + b"s\x02\0\0\0ab"
    head = b"HRv1" + struct.pack("<IQ", len(tree), 70)
    assert data == head + tree + bytes(64 - 16 - len(tree)) + b"\0\0\1\0\2\0"


def decode_or_damaged(data):
    try:
        decode(data)
    except Damaged:
        return 1
    return 0


def test_damage_is_reported():
    good = pack(EVERYTHING)
    for end in [*range(200), *RNG.integers(200, len(good), 200)]:
        assert decode_or_damaged(good[:end])
        assert decode_or_damaged(good + bytes(int(end) + 1))
    assert decode_or_damaged(good.replace(b"HRv1", b"HRv2"))


def test_characters_that_are_none():
    """NumPy would pass them to Python, which raises a SystemError."""
    for text, sound, damaged in (
        (np.str_("ab"), b"b\0\0\0", b"b\0\xff\0"),
        (np.array(["ab", "c"]), b"b\0\0\0", b"b\0\xff\0"),
        (np.array(["ab"], ">U2"), b"\0\0\0b", b"\xff\0\0b"),
    ):
        assert pack(text).count(sound) == 1
        assert decode_or_damaged(pack(text).replace(sound, damaged))
        assert not decode_or_damaged(pack(text))


@pytest.mark.parametrize("value", [EVERYTHING, *EVERYTHING.values()], ids=lambda v: str(type(v)))
def test_random_damage_raises_nothing_else(value):
    good = pack(value)
    tree = struct.unpack_from("<I", good, 4)[0] + 16
    told = 0
    for _ in range(1500):
        bad = bytearray(good)
        for at in RNG.integers(0, tree, RNG.integers(1, 6)):
            bad[at] = RNG.integers(0, 256)
        told += decode_or_damaged(bad)
    assert told > 300
    for length in RNG.integers(0, 300, 1500):
        tree = RNG.integers(0, 256, length, dtype=np.uint8).tobytes()
        tree = bytes([b"(a[{ftpsyYbBgIicd"[length % 17]]) + tree
        decode_or_damaged(struct.pack("<4sIQ", b"HRv1", len(tree), 16 + len(tree)) + tree)
