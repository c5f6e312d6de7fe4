"""Makes the small files of this folder, and digests.txt: what Pillow sees in each.

    python tests/golden/codec/make.py

A line of digests.txt is: file name, width, height, CRC-32 of the pixels that
Image.open(f).convert("RGB") gives. The one exception is 16-bit grey PNG, which
Pillow clips at 255; there the digest is of the samples' high bytes. ycck.jpg
and rgb.jpg come from libjpeg (Pillow cannot write them) and are only digested.
NAME.item is NAME.jpg as coefficients of version 1, by the last commit that wrote
that version (`headrace.convert`); it has the pixels of its file.
"""

import io
import pathlib
import random as python_random
import struct
import sys
import zlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "python"))
from made_images import bmp, bmp_rows, gif, run_lengths  # noqa: E402

WIDTH, HEIGHT = 19, 13
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
TYPES = {0: "grey", 2: "rgb", 3: "palette", 4: "greyalpha", 6: "rgba"}
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(
        ">I", zlib.crc32(kind + data))


def pack_rows(samples, depth):
    """Rows of samples (height, width, channels) as PNG scanlines without a filter."""
    out = b""
    for row in samples:
        flat = row.reshape(-1)
        if depth == 16:
            packed = flat.astype(">u2").tobytes()
        else:
            bits = ((flat[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8)
            packed = np.packbits(bits.reshape(-1)).tobytes()
        out += b"\0" + packed
    return out


def png(samples, depth, kind, interlaced, extra=b""):
    height, width, _ = samples.shape
    if interlaced:
        passes = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7]
        raw = b"".join(pack_rows(p, depth) for p in passes if p.size)
    else:
        raw = pack_rows(samples, depth)
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra +
            chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def make_pngs(random):
    exceptions = {}
    for kind, depths in DEPTHS.items():
        for depth in depths:
            for interlaced in (False, True):
                shape = (HEIGHT, WIDTH, CHANNELS[kind])
                samples = random.integers(0, 1 << depth, shape)
                extra = b""
                if kind == 3:
                    # Short of what the depth could name: the rest is out of range.
                    entries = (1 << depth) - (depth > 1)
                    colours = random.integers(0, 256, 3 * entries, dtype=np.uint8)
                    extra = chunk(b"PLTE", colours.tobytes()) + chunk(b"tRNS", b"\0\x80")
                elif kind == 0:
                    extra = chunk(b"gAMA", struct.pack(">I", 45455)) + chunk(b"tRNS", b"\0\1")
                name = f"{TYPES[kind]}{depth}{'-interlaced' if interlaced else ''}.png"
                (HERE / name).write_bytes(png(samples, depth, kind, interlaced, extra))
                if kind == 0 and depth == 16:
                    exceptions[name] = np.repeat(samples >> 8, 3, 2).astype(np.uint8)
    return exceptions


def make_jpegs(random):
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    noise = random.integers(0, 60, (HEIGHT, WIDTH, 4))
    picture = (np.stack([x * 9, y * 13, x * 5 + y * 7, x * y], 2) + noise).clip(0, 255)
    picture = picture.astype(np.uint8)
    rgb = Image.fromarray(picture[..., :3])
    rgb.save(HERE / "420.jpg", quality=90, subsampling=2)
    rgb.save(HERE / "422.jpg", quality=75, subsampling=1)
    rgb.save(HERE / "444-progressive.jpg", quality=95, subsampling=0, progressive=True)
    rgb.convert("L").save(HERE / "grey.jpg", quality=80)
    cmyk = Image.fromarray(picture, "CMYK")
    cmyk.save(HERE / "cmyk.jpg", quality=90)
    data = (HERE / "cmyk.jpg").read_bytes()
    at = data.index(b"\xff\xee")
    length = struct.unpack(">H", data[at + 2:at + 4])[0]
    (HERE / "cmyk-no-adobe.jpg").write_bytes(data[:at] + data[at + 2 + length:])


def make_others():
    rng = python_random.Random(2)
    size = (WIDTH, HEIGHT)
    random = np.random.default_rng(2)
    pixels = random.integers(0, 256, (3, HEIGHT, WIDTH, 4), dtype=np.uint8)
    frames = [Image.fromarray(p) for p in pixels]
    rgb = frames[0].convert("RGB")
    rgb.save(HERE / "lossy.webp", quality=60)
    rgb.save(HERE / "lossless.webp", lossless=True)
    frames[0].save(HERE / "alpha.webp", quality=80)
    frames[0].save(HERE / "animated.webp", save_all=True, append_images=frames[1:], lossless=True)

    def write(name, bits, **kind):
        data = kind.pop("data", None) or bmp_rows(*size, bits, rng)
        (HERE / name).write_bytes(bmp(*size, bits, data, **kind))

    write("palette1.bmp", 1, header=12, palette=rng.randbytes(6))
    write("palette4.bmp", 4, header=124, palette=rng.randbytes(4 * 11))
    write("palette8.bmp", 8, palette=rng.randbytes(4 * 256), gap=5)
    write("rgb555.bmp", 16)
    write("rgb565.bmp", 16, compression=3, masks=(0xF800, 0x7E0, 0x1F, 0), top_down=True)
    write("rgb24.bmp", 24, top_down=True)
    write("rgba32.bmp", 32, header=124, compression=3,
          masks=(0xFF, 0xFF00, 0xFF0000, 0xFF000000))
    write("rle8.bmp", 8, compression=1, palette=rng.randbytes(4 * 256),
          data=run_lengths(*size, False, rng))
    write("rle4.bmp", 4, compression=2, palette=rng.randbytes(4 * 16),
          data=run_lengths(*size, True, rng))
    values = bytes(rng.randrange(32) for _ in range(WIDTH * HEIGHT))
    for name, frame, kind in [
        ("global.gif", (0, 0, *size), {"palette": rng.randbytes(96)}),
        ("local-interlaced.gif", (3, 2, *size), {"local": rng.randbytes(96), "interlaced": True,
                                                 "transparent": 7, "comment": True}),
    ]:
        (HERE / name).write_bytes(gif((30, 11), frame, 5, values, rng, **kind))
    for name, head, count in [("tones.pgm", b"P5\n%d %d\n255\n", 1), ("rgb.ppm", b"P6 %d %d #\n99\n", 3)]:
        (HERE / name).write_bytes(head % size + rng.randbytes(WIDTH * HEIGHT * count))


def main():
    random = np.random.default_rng(1)
    exceptions = make_pngs(random)
    make_jpegs(random)
    make_others()
    write_digests(exceptions)


def write_digests(exceptions):
    lines = []
    for path in sorted(p for p in HERE.iterdir() if p.suffix not in {".py", ".txt", ".item"}):
        image = Image.open(io.BytesIO(path.read_bytes()))
        pixels = exceptions.get(path.name)
        if pixels is None:
            pixels = np.asarray(image.convert("RGB"))
        lines.append(f"{path.name} {image.width} {image.height} {zlib.crc32(pixels.tobytes()):08x}")
        if path.with_suffix(".item").exists():
            lines.append(lines[-1].replace(path.name, path.stem + ".item"))
    (HERE / "digests.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
