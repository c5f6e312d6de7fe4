"""Makes BMP and GIF files of kinds that Pillow reads and does not write."""

import random
import struct


def bmp(width: int, height: int, bits: int, data: bytes, **kind) -> bytes:
    """``data`` holds the rows as in the file, or run-length data. ``kind``: header (bytes), compression,
    top_down, palette (bytes), colours, masks (of four), gap (bytes before the pixels)."""
    header, masks = kind.get("header", 40), kind.get("masks", (0, 0, 0, 0))
    palette = kind.get("palette", b"")
    colours = kind.get("colours", len(palette) // (3 if header == 12 else 4))
    lines = -height if kind.get("top_down") else height
    compression = kind.get("compression", 0)
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        info = struct.pack(
            "<IiiHHIIiiII", header, width, lines, 1, bits, compression, len(data), 0, 0, colours, 0
        )
        if header > 40:
            info = (info + struct.pack("<4I", *masks)).ljust(header, b"\0")[:header]
        elif compression == 3:
            info += struct.pack("<3I", *masks[:3])
    gap = bytes(kind.get("gap", 0))
    at = 14 + len(info) + len(palette) + len(gap)
    return (
        b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + info + palette + gap + data
    )


def bmp_rows(width: int, height: int, bits: int, rng: random.Random) -> bytes:
    return rng.randbytes((width * bits + 31) // 32 * 4 * height)


def run_lengths(width: int, height: int, nibbles: bool, rng: random.Random) -> bytes:
    """Rows of runs, of single pixels and of what is skipped."""
    out = bytearray()
    for _ in range(height):
        x = 0
        while x < width:
            count = rng.randint(1, min(width - x, 200))
            kind = rng.randrange(8)
            if kind < 4:
                out += bytes([count, rng.randrange(256)])
            elif kind < 7 and count >= 3:
                size = (count + 1) // 2 if nibbles else count
                out += bytes([0, count]) + rng.randbytes(size)
                out += bytes(size % 2)
            elif kind == 7:
                out += bytes([0, 2, count, 0])
            else:
                continue
            x += count
        out += b"\0\0"  # without it Pillow drops what follows
    return bytes(out) + b"\0\1"


def bmp_files() -> list[bytes]:
    rng = random.Random(5)
    files = []
    for width, height in [(1, 1), (7, 5), (32, 9), (61, 40), (100, 3)]:
        for bits in (1, 4, 8):
            for header in (12, 40, 64, 108, 124):
                entry = 3 if header == 12 else 4
                full = header == 12 or rng.randrange(2)
                colours = 1 << bits if full else rng.randint(1, 1 << bits)
                files.append(
                    bmp(
                        width,
                        height,
                        bits,
                        bmp_rows(width, height, bits, rng),
                        header=header,
                        palette=rng.randbytes(entry * colours),
                        top_down=header > 12 and rng.randrange(2),
                        gap=rng.randrange(6),
                    )
                )
        for bits, masks in [
            (16, None),
            (24, None),
            (32, None),
            (16, (0xF800, 0x7E0, 0x1F, 0)),
            (16, (0x7C00, 0x3E0, 0x1F, 0)),
            (24, (0xFF0000, 0xFF00, 0xFF, 0)),
            (32, (0xFF0000, 0xFF00, 0xFF, 0)),
            (32, (0xFF000000, 0xFF0000, 0xFF00, 0)),
            (32, (0xFF000000, 0xFF00, 0xFF, 0)),
            (32, (0xFF000000, 0xFF0000, 0xFF00, 0xFF)),
            (32, (0xFF, 0xFF00, 0xFF0000, 0xFF000000)),
            (32, (0xFF0000, 0xFF00, 0xFF, 0xFF000000)),
            (32, (0, 0, 0, 0)),
        ]:
            for header in (40, 52, 56, 124):
                if header < 56 and masks and masks[3]:
                    continue
                files.append(
                    bmp(
                        width,
                        height,
                        bits,
                        bmp_rows(width, height, bits, rng),
                        header=header,
                        compression=3 if masks else 0,
                        masks=masks or (0, 0, 0, 0),
                        top_down=rng.randrange(2),
                    )
                )
        for bits, compression in [(8, 1), (4, 2)]:
            for _ in range(4):
                files.append(
                    bmp(
                        width,
                        height,
                        bits,
                        run_lengths(width, height, bits == 4, rng),
                        compression=compression,
                        palette=rng.randbytes(4 << bits),
                    )
                )
    return files


def lzw(values: bytes, bits: int, rng: random.Random) -> bytes:
    """GIF's LZW data with its sub-blocks; now and then the table is cleared early, or stays full."""
    clear, end = 1 << bits, (1 << bits) + 1
    out, filled, count = 0, 0, 0
    stream = bytearray()

    def put(code: int, size: int) -> None:
        nonlocal out, filled
        out |= code << filled
        filled += size
        while filled >= 8:
            stream.append(out & 255)
            out >>= 8
            filled -= 8

    def fresh() -> dict[bytes, int]:
        return {bytes([i]): i for i in range(clear)}

    table, size, current = fresh(), bits + 1, b""
    put(clear, size)
    following = end + 1
    limit = rng.choice([300, 4096, 5000])
    for value in values:
        longer = current + bytes([value])
        if longer in table:
            current = longer
            continue
        put(table[current], size)
        count += 1
        if following < 4096:
            if following == 1 << size and size < 12:
                size += 1
            table[longer] = following
            following += 1
        if count >= limit:
            # The decoder is one string behind, so its codes may have grown only now.
            if following == 1 << size and size < 12 and following < 4096:
                size += 1
            put(clear, size)
            table, size, following, count = fresh(), bits + 1, end + 1, 0
        current = bytes([value])
    put(table[current], size)
    if following == 1 << size and size < 12:
        size += 1
    put(end, size)
    stream.append(out & 255)
    blocks = bytearray([bits])
    at = 0
    while at < len(stream):
        length = rng.choice([255, 255, rng.randint(1, 255)])
        piece = stream[at : at + length]
        blocks += bytes([len(piece)]) + piece
        at += length
    return bytes(blocks) + b"\0"


def gif(screen, frame, bits: int, values: bytes, rng: random.Random, **kind) -> bytes:
    """``screen``: width, height; ``frame``: x, y, width, height. ``kind``: palette and local (of
    2**n colours), transparent (an index), interlaced, comment."""
    palette, local = kind.get("palette", b""), kind.get("local", b"")

    def flags(colours: bytes) -> int:
        return 0x80 | (len(colours) // 3).bit_length() - 2 if colours else 0

    out = b"GIF89a" + struct.pack("<HHBBB", *screen, flags(palette), 1, 0) + palette
    if kind.get("comment"):
        out += b"!\xfe\x05hello\x03you\0" + b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"
    if kind.get("transparent") is not None:
        out += b"!\xf9\4" + struct.pack("<BHB", 1, 10, kind["transparent"]) + b"\0"
    order = flags(local) | (0x40 if kind.get("interlaced") else 0)
    out += b"," + struct.pack("<HHHHB", *frame, order) + local
    return out + lzw(values, bits, rng) + b";"


def gif_files() -> list[bytes]:
    rng = random.Random(6)
    files = []
    for n in range(120):
        bits = rng.randint(2, 8)
        width, height = rng.choice([(1, 1), (9, 7), (40, 30), (150, 90)])
        if n % 3:
            frame = (0, 0, width, height)
        else:
            frame = (rng.randrange(20), rng.randrange(20), width, height)
        screen = (width + rng.randrange(30), height + rng.randrange(30)) if n % 2 else (width, height)
        step = rng.choice([1, 1, 2, 7])  # runs
        values = [rng.randrange(1 << bits) for _ in range(width * height)]
        values = [values[i // step] for i in range(width * height)]

        def colours(bits: int = bits) -> bytes:
            kind = rng.randrange(6)
            size = rng.randint(1, 8) if kind == 0 else bits
            ramp = bytes(i for i in range(1 << size) for _ in range(3))
            return ramp if kind == 1 else rng.randbytes(3 << size)

        files.append(
            gif(
                screen,
                frame,
                bits,
                bytes(values),
                rng,
                palette=colours() if rng.randrange(5) else b"",
                local=colours() if rng.randrange(3) == 0 else b"",
                transparent=rng.choice([None, rng.randrange(1 << bits)]),
                interlaced=rng.randrange(2),
                comment=rng.randrange(2),
            )
        )
    return files


def ppm_files() -> list[bytes]:
    rng = random.Random(7)
    files = []
    for width, height in [(1, 1), (7, 5), (61, 40)]:
        for channels, magic in [(1, b"P5"), (3, b"P6")]:
            pixels = rng.randbytes(width * height * channels)
            for most in (255, 1, 3, 100, 254):
                head = b"%s\n%d %d\n%d\n" % (magic, width, height, most)
                files.append(head + pixels)
            files.append(b"%s # a comment\n%d\t%d # more\r\n\n255 " % (magic, width, height) + pixels)
    return files
