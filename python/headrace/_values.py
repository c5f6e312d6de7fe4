"""Encodes samples of a dataset to bytes, and decodes them.

A kept value comes from shared memory, where other processes write. Decoding therefore creates
no object of a class that the bytes name: there is a fixed list of kinds, every length is checked
against the bytes, and an inconsistent value is :class:`Damaged`. No pickle is involved.

The format (version 1, little-endian)::

    0   4  "HRv1"
    4   4  length of the tree
    8   8  length of the whole value
    16     the tree: one node, its children behind it in their order
    ...    blobs: each begins at a multiple of 64; their order is that of their nodes

A node is a byte for its kind, then

    N T F       None, True, False: nothing
    i d c       int (8 bytes), float (8), complex (16)
    I s b y     larger int (signed), str (UTF-8), bytes, bytearray: length (4), content
    B Y         bytes, bytearray of more than 256 bytes: length (8); a blob
    g           NumPy scalar: type text (1 + n), its bytes
    a f         NumPy array in C or Fortran order: type text (1 + n), dimensions (1),
                their sizes (8 each); a blob
    t           torch tensor: class and type text (1 + n each), dimensions (1), their
                sizes (8 each); a blob
    v           torchvision's boxes or key points: class text (1 + n), what they have beside
                their elements as a dict's node, the elements as a tensor's node
    p           PIL image: mode (1 + n), width, height (4 each), palette mode (1 + n),
                its length (2) and bytes, `info` as a node; a blob
    ( [ {       tuple, list, dict: count (4), the nodes; a dict's keys are nodes too
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["Damaged", "Unkept", "decode", "encode"]

_MAGIC = b"HRv1"
_HEAD = struct.Struct("<4sIQ")
_ALIGNMENT = 64
_INLINE = 256  # bytes objects up to here lie in the tree
_DEPTH = 64
_DIMENSIONS = 64

_U2, _U4, _U8 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
_I8, _F8, _C16 = struct.Struct("<q"), struct.Struct("<d"), struct.Struct("<dd")

# Types of NumPy arrays that are their bytes and nothing else.
_NUMPY_TYPE = re.compile(r"[<>|=](?:[?biufcSU][0-9]{1,6}|[mM]8(?:\[[0-9]{0,9}[A-Za-z]{1,2}\])?)")

# Kinds of torchvision's tensors that have nothing beside their elements.
_TV_TENSORS = ("Image", "Mask", "Video")
# Those that have something, as far as this torchvision knows it.
_TV_POINTS = {
    "BoundingBoxes": ("format", "canvas_size", "clamping_mode"),
    "KeyPoints": ("canvas_size",),
}

# Bytes of a pixel; of mode "1" eight pixels, each row by itself.
_PIL_MODES = {"1": 1, "L": 1, "P": 1, "LA": 2, "La": 2, "PA": 2, "I;16": 2, "I;16B": 2, "I;16L": 2}
_PIL_MODES |= dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), 3)
_PIL_MODES |= dict.fromkeys(("RGBA", "RGBX", "RGBa", "CMYK", "I", "F"), 4)


class Damaged(ValueError):
    """The bytes are not a value."""


class Unkept(TypeError):
    """There is something that cannot be kept: ``where`` in the sample, and ``what`` it is."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where = where
        self.what = what

    def __str__(self) -> str:
        return f"{self.where or 'the sample'}: {self.what}"


# To bytes


class _Writer:
    def __init__(self) -> None:
        self.tree = bytearray()
        self.blobs: list[Any] = []  # flat buffers
        self.path: list[Any] = []  # keys and positions down to the value that is written

    def text(self, value: str) -> None:
        content = value.encode("ascii")
        self.tree.append(len(content))
        self.tree += content

    def sizes(self, shape: Any) -> None:
        self.tree.append(len(shape))
        for n in shape:
            self.tree += _U8.pack(n)

    def refuse(self, what: str) -> Unkept:
        return Unkept("".join(f"[{key!r}]" for key in self.path), what)

    def node(self, value: Any) -> None:
        write = _WRITERS.get(type(value)) or _find_writer(value)
        if write is None:
            raise self.refuse(f"{type_name(type(value))} cannot be kept")
        write(self, value)

    def child(self, key: Any, value: Any) -> None:
        if len(self.path) >= _DEPTH:
            raise self.refuse(f"more than {_DEPTH} levels deep")
        self.path.append(key)
        self.node(value)
        self.path.pop()


def encode(value: Any) -> list[Any]:
    """The buffers that, one behind the other, are the value. They refer to its memory.

    Raises Unkept.
    """
    writer = _Writer()
    writer.node(value)
    pieces: list[Any] = [b"", writer.tree]
    length = _HEAD.size + len(writer.tree)
    for blob in writer.blobs:
        padding = -length % _ALIGNMENT
        if padding:
            pieces.append(bytes(padding))
        pieces.append(blob)
        length += padding + memoryview(blob).nbytes
    pieces[0] = _HEAD.pack(_MAGIC, len(writer.tree), length)
    return pieces


def _write_bool(writer: _Writer, value: bool) -> None:
    writer.tree += b"T" if value else b"F"


def _write_int(writer: _Writer, value: int) -> None:
    if -(1 << 63) <= value < 1 << 63:
        writer.tree += b"i" + _I8.pack(value)
    else:
        content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        writer.tree += b"I" + _U4.pack(len(content)) + content


def _write_str(writer: _Writer, value: str) -> None:
    content = value.encode("utf-8", "surrogatepass")
    writer.tree += b"s" + _U4.pack(len(content)) + content


def _write_bytes(writer: _Writer, value: bytes | bytearray) -> None:
    kind = b"b" if type(value) is bytes else b"y"
    if len(value) <= _INLINE:
        writer.tree += kind + _U4.pack(len(value)) + value
    else:
        writer.tree += kind.upper() + _U8.pack(len(value))
        writer.blobs.append(value)


def _write_sequence(writer: _Writer, value: tuple[Any, ...] | list[Any]) -> None:
    writer.tree += (b"(" if type(value) is tuple else b"[") + _U4.pack(len(value))
    for i, item in enumerate(value):
        writer.child(i, item)


def _write_dict(writer: _Writer, value: dict[Any, Any]) -> None:
    writer.tree += b"{" + _U4.pack(len(value))
    for key, item in value.items():
        if type(key) not in (str, int, bool, bytes):
            raise writer.refuse(f"a key of type {type_name(type(key))} cannot be kept")
        writer.node(key)
        writer.child(key, item)


_WRITERS: dict[type, Callable[[_Writer, Any], None]] = {
    type(None): lambda writer, value: writer.tree.append(ord("N")),
    bool: _write_bool,
    int: _write_int,
    float: lambda writer, value: writer.tree.extend(b"d" + _F8.pack(value)),
    complex: lambda writer, value: writer.tree.extend(b"c" + _C16.pack(value.real, value.imag)),
    str: _write_str,
    bytes: _write_bytes,
    bytearray: _write_bytes,
    tuple: _write_sequence,
    list: _write_sequence,
    dict: _write_dict,
}


def _find_writer(value: Any) -> Callable[[_Writer, Any], None] | None:
    """For kinds of libraries, which are there when one of their objects is."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _write_tensor
    if numpy is not None and type(value) in (numpy.ndarray, numpy.memmap):
        return _write_array
    if numpy is not None and isinstance(value, numpy.generic):
        return _write_scalar
    image = sys.modules.get("PIL.Image")
    if image is not None and isinstance(value, image.Image):
        return _write_image
    return None


def _write_scalar(writer: _Writer, value: Any) -> None:
    if not _NUMPY_TYPE.fullmatch(value.dtype.str):
        raise writer.refuse(f"a NumPy scalar of type {value.dtype} cannot be kept")
    writer.tree += b"g"
    writer.text(value.dtype.str)
    writer.tree += value.tobytes()


def _write_array(writer: _Writer, value: Any) -> None:
    import numpy

    if not _NUMPY_TYPE.fullmatch(value.dtype.str):
        raise writer.refuse(f"a NumPy array of type {value.dtype} cannot be kept")
    fortran = value.flags.f_contiguous and not value.flags.c_contiguous
    writer.tree += b"f" if fortran else b"a"
    writer.text(value.dtype.str)
    writer.sizes(value.shape)
    flat = numpy.ascontiguousarray(value.T if fortran else value).reshape(-1)
    writer.blobs.append(flat.view(numpy.uint8) if flat.size else b"")


def _write_tensor(writer: _Writer, value: Any) -> None:
    import torch

    name = _tensor_class(value)
    if name is None:
        raise writer.refuse(f"{type_name(type(value))} cannot be kept")
    if value.device.type != "cpu":
        raise writer.refuse(f"a tensor on {value.device} cannot be kept, only those in host memory")
    if value.layout != torch.strided or value.is_quantized or value.is_nested:
        raise writer.refuse(f"a tensor of layout {value.layout} cannot be kept, only dense ones")
    if value.requires_grad:
        raise writer.refuse("a tensor that requires a gradient cannot be kept: detach() it")
    plain = value.as_subclass(torch.Tensor) if name != "Tensor" else value
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    if name in _TV_POINTS:
        _write_beside(writer, name, value)
        name = "Tensor"
    writer.tree += b"t"
    writer.text(name)
    writer.text(str(plain.dtype).partition(".")[2])
    writer.sizes(plain.shape)
    flat = plain.contiguous().reshape(-1)
    writer.blobs.append(flat.view(torch.uint8).numpy() if flat.numel() else b"")


def _write_beside(writer: _Writer, name: str, value: Any) -> None:
    beside = {key: getattr(value, key) for key in _TV_POINTS[name] if hasattr(value, key)}
    beside["canvas_size"] = tuple(int(side) for side in beside["canvas_size"])
    if "format" in beside:
        beside["format"] = beside["format"].name
    writer.tree += b"v"
    writer.text(name)
    _write_dict(writer, beside)


def _tensor_class(value: Any) -> str | None:
    """"Tensor", the name of a torchvision kind, or None."""
    import torch

    cls = type(value)
    if cls is torch.Tensor:
        return "Tensor"
    kept = cls.__name__ in _TV_TENSORS or cls.__name__ in _TV_POINTS
    if kept and cls.__module__.startswith("torchvision.tv_tensors"):
        return str(cls.__name__)
    return None


def _write_image(writer: _Writer, value: Any) -> None:
    if value.mode not in _PIL_MODES or 0 in value.size:
        raise writer.refuse(
            f"a PIL image of mode {value.mode} and size {value.size} cannot be kept"
        )
    content = value.tobytes()  # decodes what was opened and not loaded yet
    mode, palette = "", b""
    if value.palette is not None and value.mode in ("P", "PA"):
        mode = "RGBA" if value.palette.mode == "RGBA" else "RGB"
        palette = value.im.getpalette(mode, mode)
    writer.tree += b"p"
    writer.text(value.mode)
    writer.tree += _U4.pack(value.width) + _U4.pack(value.height)
    writer.text(mode)
    writer.tree += _U2.pack(len(palette)) + palette
    _write_dict(writer, {k: v for k, v in value.info.items() if _is_plain(k, v)})
    writer.blobs.append(content)


def _is_plain(key: Any, value: Any) -> bool:
    """Whether it is an entry of an image's `info` that can be kept."""
    try:
        encode({key: value})
    except Unkept:
        return False
    return True


def type_name(cls: type) -> str:
    module = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return f"{module}{cls.__qualname__}"


# From bytes


class _Reader:
    def __init__(self, view: memoryview, end: int, copy: bool) -> None:
        self.view = view
        self.at = _HEAD.size
        self.end = end  # of the tree
        self.blob = end  # where the last one ended
        self.copy = copy
        self.depth = 0

    def take(self, length: int) -> memoryview:
        at = self.at
        if length > self.end - at:
            raise Damaged("a node is longer than the tree")
        self.at = at + length
        return self.view[at : at + length]

    def unpack(self, layout: struct.Struct) -> Any:
        return layout.unpack(self.take(layout.size))[0]

    def text(self) -> str:
        return str(self.take(self.take(1)[0]), "ascii")

    def sizes(self) -> list[int]:
        count = self.take(1)[0]
        if count > _DIMENSIONS:
            raise Damaged("an array has too many dimensions")
        return [self.unpack(_U8) for _ in range(count)]

    def next_blob(self, length: int) -> memoryview:
        start = self.blob + -self.blob % _ALIGNMENT
        if length > len(self.view) - start:
            if length:
                raise Damaged("a blob is longer than the value")
            start = len(self.view)
        self.blob = start + length
        return self.view[start : start + length]

    def node(self) -> Any:
        read = _READERS.get(self.take(1)[0])
        if read is None:
            raise Damaged("a node is of no known kind")
        return read(self)

    def children(self) -> list[Any]:
        count = self.unpack(_U4)
        if count > self.end - self.at:
            raise Damaged("there are fewer nodes than the count says")
        self.depth += 1
        if self.depth > _DEPTH + 1:
            raise Damaged("the tree is too deep")
        nodes = [self.node() for _ in range(count)]
        self.depth -= 1
        return nodes


def decode(data: Any, copy: bool = True) -> Any:
    """The value that `encode` made these bytes of.

    With ``copy`` its arrays and tensors own their memory and may be written to. Without,
    they are views of ``data``, NumPy's read-only; torch has no read-only tensors.

    Raises Damaged.
    """
    view = memoryview(data).toreadonly()
    try:
        magic, tree, length = _HEAD.unpack_from(view)
        if magic != _MAGIC or length != len(view) or tree > length - _HEAD.size:
            raise Damaged("the head is not that of a value")
        reader = _Reader(view, _HEAD.size + tree, copy)
        value = reader.node()
        if reader.at != reader.end or reader.blob != length:
            raise Damaged("there is more than the value")
        return value
    except Damaged:
        raise
    except (ValueError, TypeError, OverflowError, RuntimeError, MemoryError, struct.error) as error:
        raise Damaged(str(error)) from error


def _read_int(reader: _Reader) -> int:
    return int.from_bytes(reader.take(reader.unpack(_U4)), "little", signed=True)


def _read_dict(reader: _Reader) -> dict[Any, Any]:
    count = reader.unpack(_U4)
    reader.depth += 1
    if count > reader.end - reader.at or reader.depth > _DEPTH + 1:
        raise Damaged("there are fewer nodes than the count says, or too many levels")
    value = {}
    for _ in range(count):
        key = reader.node()
        value[key] = reader.node()
    reader.depth -= 1
    return value


def _read_numpy_type(reader: _Reader) -> Any:
    import numpy

    text = reader.text()
    if not _NUMPY_TYPE.fullmatch(text):
        raise Damaged("an array's type is not known")
    return numpy.dtype(text)


def _read_scalar(reader: _Reader) -> Any:
    import numpy

    dtype = _read_numpy_type(reader)
    content = bytes(reader.take(dtype.itemsize))
    if not content:
        return numpy.zeros(1, dtype)[0]
    return _check_text(numpy.frombuffer(content, dtype, 1))[0]


def _check_text(array: Any) -> Any:
    """NumPy does not look at characters until they are used, and then it is too late."""
    import numpy

    if array.dtype.kind == "U" and array.dtype.itemsize:
        characters = array.reshape(-1).view(numpy.dtype("u4").newbyteorder(array.dtype.byteorder))
        if (characters > sys.maxunicode).any():
            raise Damaged("a text has a character that is none")
    return array


def _blob_length(sizes: list[int], item: int) -> int:
    length = item
    for n in sizes:
        length *= n
    if 0 in sizes and max(sizes) >= 1 << 32:
        raise Damaged("an array's sizes make no sense")
    return length


def _read_array(reader: _Reader, fortran: bool = False) -> Any:
    import numpy

    dtype = _read_numpy_type(reader)
    sizes = reader.sizes()
    blob = reader.next_blob(_blob_length(sizes, dtype.itemsize))
    if not dtype.itemsize or 0 in sizes:
        return numpy.empty(sizes, dtype, order="F" if fortran else "C")
    array = _check_text(numpy.frombuffer(blob, dtype)).reshape(sizes[::-1] if fortran else sizes)
    if reader.copy:
        array = array.copy()
    return array.T if fortran else array


def _read_tensor(reader: _Reader) -> Any:
    import torch

    name, dtype = reader.text(), getattr(torch, reader.text(), None)
    if not isinstance(dtype, torch.dtype) or (name != "Tensor" and name not in _TV_TENSORS):
        raise Damaged("a tensor's type is not known")
    sizes = reader.sizes()
    blob = reader.next_blob(_blob_length(sizes, dtype.itemsize))
    if 0 in sizes:
        tensor = torch.empty(sizes, dtype=dtype)
    elif reader.copy:
        # A bytearray is torch's own to write to, and is made with one copy.
        tensor = torch.frombuffer(bytearray(blob), dtype=dtype).reshape(sizes)
    else:
        tensor = _tensor_of(blob, dtype).reshape(sizes)
    if name == "Tensor":
        return tensor
    from torchvision import tv_tensors

    return tensor.as_subclass(getattr(tv_tensors, name))


def _read_points(reader: _Reader) -> Any:
    name = reader.text()
    if name not in _TV_POINTS or reader.take(1) != b"{":
        raise Damaged("a tensor's class is not known")
    beside = _read_dict(reader)
    if not set(beside) <= set(_TV_POINTS[name]) or reader.take(1) != b"t":
        raise Damaged("boxes have what none have beside their elements")
    tensor = _read_tensor(reader)
    from torchvision import tv_tensors

    try:
        return getattr(tv_tensors, name)(tensor, **beside)
    except (AttributeError, KeyError) as error:
        raise Damaged(f"this torchvision does not know them: {error}") from error


class _Memory:
    """Shows NumPy memory as writable, and keeps it alive."""

    def __init__(self, blob: memoryview) -> None:
        import numpy

        self.array = numpy.frombuffer(blob, numpy.uint8)
        address = self.array.__array_interface__["data"][0]
        self.__array_interface__ = {
            "version": 3,
            "shape": self.array.shape,
            "typestr": "|u1",
            "data": (address, False),
        }


def _tensor_of(blob: memoryview, dtype: Any) -> Any:
    """A tensor in place. torch warns of memory that is read-only, and offers nothing else."""
    import numpy
    import torch

    return torch.from_numpy(numpy.asarray(_Memory(blob))).view(dtype)


def _read_image(reader: _Reader) -> Any:
    from PIL import Image

    mode = reader.text()
    width, height = reader.unpack(_U4), reader.unpack(_U4)
    palette_mode = reader.text()
    palette = bytes(reader.take(reader.unpack(_U2)))
    if reader.take(1) != b"{":
        raise Damaged("an image has no info")
    info = _read_dict(reader)
    pixel = _PIL_MODES.get(mode)
    if pixel is None or not width or not height or palette_mode not in ("", "RGB", "RGBA"):
        raise Damaged("an image's mode or size makes no sense")
    row = (width + 7) // 8 if mode == "1" else width * pixel
    image = Image.frombytes(mode, (width, height), reader.next_blob(row * height))
    if palette_mode:
        image.putpalette(palette, palette_mode)
    image.info = info
    return image


_READERS: dict[int, Callable[[_Reader], Any]] = {
    ord("N"): lambda reader: None,
    ord("T"): lambda reader: True,
    ord("F"): lambda reader: False,
    ord("i"): lambda reader: reader.unpack(_I8),
    ord("I"): _read_int,
    ord("d"): lambda reader: reader.unpack(_F8),
    ord("c"): lambda reader: complex(*_C16.unpack(reader.take(_C16.size))),
    ord("s"): lambda reader: str(reader.take(reader.unpack(_U4)), "utf-8", "surrogatepass"),
    ord("b"): lambda reader: bytes(reader.take(reader.unpack(_U4))),
    ord("y"): lambda reader: bytearray(reader.take(reader.unpack(_U4))),
    ord("B"): lambda reader: bytes(reader.next_blob(reader.unpack(_U8))),
    ord("Y"): lambda reader: bytearray(reader.next_blob(reader.unpack(_U8))),
    ord("g"): _read_scalar,
    ord("a"): _read_array,
    ord("f"): lambda reader: _read_array(reader, fortran=True),
    ord("t"): _read_tensor,
    ord("v"): _read_points,
    ord("p"): _read_image,
    ord("("): lambda reader: tuple(reader.children()),
    ord("["): lambda reader: reader.children(),
    ord("{"): _read_dict,
}
