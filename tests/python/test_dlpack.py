"""Arrays that leave the extension: both versions of DLPack, the buffer protocol, lifetimes."""

import ctypes
import gc
import sys
import threading
import weakref

import numpy as np
import pytest
import torch

import headrace
import headrace.transforms as T
from headrace import _core


@pytest.fixture
def row(photos):
    return headrace.Preparer([T.RandomResizedCrop((6, 10)), T.ToTensor()])(photos[0])


@pytest.fixture
def batch(dataset):
    loader = _core.Loader(dataset._dataset, T.make_recipe(dataset.transform), batch_size=4)
    loader.start_epoch(0)
    return loader.next()


def test_batch_says_what_it_is(batch):
    assert (len(batch), batch.count, batch.epoch, batch.number) == (4, 4, 0, 0)
    assert (batch.padding, batch.replaced) == (0, 0)
    assert batch.images.shape == (4, 3, 32, 32) and batch.images.dtype == "float32"
    assert batch.labels.shape == batch.indices.shape == (4,)
    assert batch.labels.dtype == "int64"
    assert batch.images.nbytes == 4 * 3 * 32 * 32 * 4
    assert repr(batch) == "headrace.Batch(epoch=0, number=0, samples=4)"
    assert repr(batch.labels) == "headrace.Array(shape=(4,), dtype='int64')"
    assert np.asarray(batch.indices).tolist() == [0, 1, 2, 3]


def test_consumers_share_one_memory(batch):
    array = batch.images
    consumers = [
        torch.from_dlpack(array),
        np.from_dlpack(array),
        np.asarray(array),
        np.asarray(memoryview(array)),
        np.asarray(batch.images),
    ]
    consumers[0][0, 0, 0, 0] = 42.0
    assert all(float(c[0, 0, 0, 0]) == 42.0 for c in consumers)
    assert consumers[0].data_ptr() % 64 == 0
    assert consumers[2].flags.writeable and consumers[2].flags.c_contiguous
    assert consumers[1].shape == tuple(consumers[0].shape) == array.shape


def test_rows_share_one_memory_and_outlive_their_batch(dataset):
    """The flat arrays of a batch's rows leave as its images do."""
    kinds = {"labels": "int64", "iscrowd": "bool", "corners": "float32"}
    rows = [
        {"corners": np.full((n, 4), n, np.float32), "labels": [n] * n, "iscrowd": [n % 2 == 0] * n}
        for n in range(5)
    ]
    dataset = headrace.ImageList(dataset.samples[:5], T.Resize((8, 8)), rows=rows)
    loader = _core.Loader(dataset._dataset, T.make_recipe(dataset.transform), batch_size=5)
    loader.start_epoch(0)
    columns, _, offsets = loader.next().rows
    assert np.from_dlpack(offsets).tolist() == [0, 0, 1, 3, 6, 10]
    assert {name: array.dtype for name, array in columns.items()} == kinds
    assert columns["corners"].shape == (10, 4) and columns["labels"].shape == (10,)
    kept = {}
    for name, array in columns.items():
        torchs, numpys = torch.from_dlpack(array), np.from_dlpack(array)
        torchs[3] = 0
        assert not numpys[3].any() and not np.asarray(memoryview(array))[3].any(), name
        kept[name] = torchs
    del loader, columns, offsets, numpys, array
    gc.collect()
    assert kept["labels"].tolist() == [1, 2, 2, 0, 3, 3, 4, 4, 4, 4]
    assert kept["corners"][:, 2].tolist() == kept["labels"].tolist()


def test_jax_takes_an_array(row):
    jax = pytest.importorskip("jax")
    np.testing.assert_array_equal(jax.dlpack.from_dlpack(row), np.asarray(row))


def test_capsules_of_both_versions(row):
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    assert name(row.__dlpack__()) == b"dltensor"
    assert name(row.__dlpack__(max_version=(0, 8))) == b"dltensor"
    assert name(row.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    assert name(row.__dlpack__(stream=None, max_version=(2, 3), copy=False)) == (
        b"dltensor_versioned"
    )
    assert row.__dlpack_device__() == (1, 0)


class Versioned(ctypes.Structure):
    """The head of DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def inside(capsule) -> Versioned:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Versioned.from_address(get(capsule, b"dltensor_versioned"))


def test_versioned_capsule_follows_the_standard(row):
    capsule = row.__dlpack__(max_version=(1, 1))
    v = inside(capsule)
    assert (v.major, v.flags) == (1, 0)  # writable, not copied
    assert (v.device_type, v.device_id, v.byte_offset) == (1, 0, 0)
    assert (v.code, v.bits, v.lanes) == (2, 32, 1)
    assert v.shape[: v.ndim] == [3, 6, 10]
    assert v.strides[: v.ndim] == [60, 10, 1]
    copied = row.__dlpack__(max_version=(1, 0), copy=True)
    assert inside(copied).flags == 2 and inside(copied).data != v.data


def test_copy_is_a_copy(row):
    shared, own = torch.from_dlpack(row), np.from_dlpack(row, copy=True)
    shared.zero_()
    assert own.any() and not np.asarray(row).any()


def test_requests_that_cannot_be_met(row):
    for arguments in ({"dl_device": (2, 0)}, {"stream": 1}):
        with pytest.raises(BufferError, match="host memory"):
            row.__dlpack__(**arguments)
    for arguments in ({"max_version": 1}, {"dl_device": (1,)}, {"unknown": 1}):
        with pytest.raises(TypeError):
            row.__dlpack__(**arguments)
    with pytest.raises(TypeError):
        row.__dlpack__(None)
    assert row.__dlpack__(dl_device=(1, 0)) is not None


def test_bfloat16_leaves_through_dlpack_only(photos):
    made = headrace.Preparer([T.CenterCrop(4)], dtype="bfloat16")(photos[0])
    assert torch.from_dlpack(made).dtype == torch.bfloat16
    with pytest.raises(BufferError, match="DLPack"):
        memoryview(made)


def test_types_of_all_kinds(photos):
    for name in ("uint8", "float16", "float32"):
        made = headrace.Preparer([T.CenterCrop(4)], dtype=name)(photos[0])
        assert np.asarray(made).dtype == np.from_dlpack(made).dtype == np.dtype(name)
        assert str(torch.from_dlpack(made).dtype) == f"torch.{name}"


def test_fortran_order_is_refused(row):
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    view = ctypes.create_string_buffer(256)
    with pytest.raises(BufferError, match="C order"):
        get(row, view, 0x0040 | 0x0010 | 0x0008)


def test_memory_outlives_everything_but_its_consumers(dataset):
    loader = _core.Loader(dataset._dataset, T.make_recipe(dataset.transform), batch_size=4)
    loader.start_epoch(0)
    batch = loader.next()
    expected = np.array(batch.images)
    tensor = torch.from_dlpack(batch.images)
    view = memoryview(batch.labels)
    capsule = batch.indices.__dlpack__()
    loader.close()
    del batch, loader, dataset
    gc.collect()
    np.testing.assert_array_equal(tensor.numpy(), expected)
    assert view.tolist() == [0, 0, 0, 0]
    del tensor, view, capsule


def test_a_preparer_uses_the_memory_of_dropped_results_again(photos):
    views = T.Views([[T.CenterCrop(40)], [T.CenterCrop(60)]], repeats=[2, 3])
    prepare = headrace.Preparer([views, T.ToTensor()])
    expected = [np.array(view) for view in prepare(photos[0])]

    def place(array):
        return np.asarray(array).ctypes.data

    def check(results):
        assert len({place(one) for one in results}) == len(results)
        for one, whole in zip(results, expected * (len(results) // 5), strict=True):
            np.testing.assert_array_equal(np.asarray(one), whole)

    first = {place(one) for one in prepare(photos[0])}
    assert first == {place(one) for one in prepare(photos[0])}
    # what is held is not used, whoever drops it, and wherever
    held = [one for _ in range(4) for one in prepare(photos[0])]
    check(held)
    queue = [torch.from_dlpack(one) for one in held]
    del held
    threads = [threading.Thread(target=queue.clear), threading.Thread(target=prepare, args=(photos[0],))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = prepare(photos[0])
    other = headrace.Preparer([T.CenterCrop(50), T.ToTensor()])(photos[0])  # outlives its preparer
    shape = other.shape
    del prepare
    gc.collect()
    check(kept)
    assert np.asarray(other).shape == shape


def test_no_object_is_leaked(photos):
    preparer = headrace.Preparer([T.RandomResizedCrop((6, 10)), T.ToTensor()])

    def use():
        made = preparer(photos[0])
        torch.from_dlpack(made)
        np.from_dlpack(made)
        np.asarray(made)
        made.__dlpack__()
        made.__dlpack__(max_version=(1, 0), copy=True)
        made.shape, made.dtype, repr(made)

    for _ in range(3):
        use()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(100):
        use()
    gc.collect()
    assert sys.getallocatedblocks() - before < 50


def test_types_cannot_be_made_by_hand_or_patched():
    for cls in (_core.Array, _core.Batch, _core.Dataset):
        with pytest.raises(TypeError):
            cls()
        with pytest.raises(TypeError):
            cls.shape = 1


def test_dataloader_dies_without_a_collector(dataset):
    from headrace.torch import DataLoader

    gc.disable()
    try:
        loader = DataLoader(dataset, batch_size=4)
        next(iter(loader))
        gone = weakref.ref(loader)
        del loader
        assert gone() is None
    finally:
        gc.enable()
