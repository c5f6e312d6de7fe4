"""Helpers for tests of the headrace command: a working folder, the command (HEADRACE_EXE), and
images made by hand, so that Python's standard library suffices."""
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import zlib

EXE = os.environ["HEADRACE_EXE"]


def png(width, height, pad_to=0):
    """Makes an RGB PNG; a text chunk extends it to `pad_to` bytes."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + bytes((x * 3 + y) % 251 for x in range(width * 3)) for y in range(height))
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    tail = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    missing = pad_to - len(head) - len(tail)
    if missing >= 14:
        head += chunk(b"tEXt", b"a\0" + b"x" * (missing - 14))
    return head + tail


class _Bits:
    """Packs bits into bytes, most significant first, with 0xFF stuffed as JPEG requires."""

    def __init__(self):
        self.bits = []

    def put(self, value, width):
        if width:
            self.bits.append(format(value, f"0{width}b"))

    def bytes(self):
        text = "".join(self.bits)
        text += "1" * (-len(text) % 8)
        data = int(text, 2).to_bytes(len(text) // 8, "big")
        return data.replace(b"\xff", b"\xff\x00")


def jpeg(width, height, seed=0, progressive=False):
    """Makes a grey JPEG (T.81) of flat blocks: a DC difference each, no AC."""

    def segment(marker, data):
        return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data

    # differences of 0 to 7 bits have codes of three bits; AC knows the end of a block only
    dc = bytes([0, 0, 7, 1] + [0] * 12) + bytes(range(8))
    ac = bytes([1] + [0] * 15) + bytes([0])
    blocks = -(-width // 8) * -(-height // 8)
    bits, last, ac_bits = _Bits(), 0, _Bits()
    for block in range(blocks):
        value = (block * 37 + seed * 101) % 120 - 60
        difference, last = value - last, value
        size = abs(difference).bit_length()
        bits.put(size if size < 7 else 14, 3 if size < 7 else 4)
        bits.put(difference if difference >= 0 else difference + (1 << size) - 1, size)
        (ac_bits if progressive else bits).put(0, 1)
    scan = segment(0xDA, bytes([1, 1, 0, 0, 0 if progressive else 63, 0])) + bits.bytes()
    if progressive:
        scan += segment(0xDA, bytes([1, 1, 0, 1, 63, 0])) + ac_bits.bytes()
    return (
        b"\xff\xd8"
        + segment(0xDB, bytes([0]) + bytes([8] * 64))
        + segment(0xC2 if progressive else 0xC0, struct.pack(">BHHBBBB", 8, height, width, 1, 1, 0x11, 0))
        + segment(0xC4, bytes([0x00]) + dc)
        + segment(0xC4, bytes([0x10]) + ac)
        + scan
        + b"\xff\xd9"
    )


def handles(pid, number):
    """Returns whether a process has a handler for a signal."""
    with open(f"/proc/{pid}/status") as status:
        caught = next(line for line in status if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


class CliCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="headrace-cli-"))
        self.cache = os.path.join(self.root, "cache")
        # Caches and the status of loaders, apart from those of other programs.
        self.place = tempfile.mkdtemp(prefix="headrace-cli-", dir="/dev/shm")
        self.env = dict(os.environ, XDG_CACHE_HOME=self.cache, HEADRACE_SHM=self.place)
        self.addCleanup(shutil.rmtree, self.root)
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

    def write(self, name, data=b""):
        path = os.path.join(os.fsencode(self.root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def run_it(self, *args):
        r = subprocess.run([EXE, *args], capture_output=True, env=self.env, cwd=self.root, timeout=600)
        return r.returncode, r.stdout.decode(), r.stderr.decode()

    def interrupt(self, *args, begun=lambda: True):
        """Sends Ctrl-C to a run as soon as it handles that and has `begun`. Returns (status,
        standard output, standard error); None if it ended before."""
        p = subprocess.Popen([EXE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, cwd=self.root)
        while p.poll() is None and not (handles(p.pid, signal.SIGINT) and begun()):
            time.sleep(0.001)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=600)
        return None if p.returncode == 0 else (p.returncode, out, err)

    def same_options(self, verb, *words):
        """The command and the Python package know the same options of a verb."""
        _, out, _ = self.run_it(verb, *words, "--help")
        ours = re.findall(r"^  --([a-z-]+)", out, re.MULTILINE)
        package = os.path.join(os.environ["HEADRACE_SOURCE_ROOT"], "python/headrace", verb)
        with open(os.path.join(package, "arguments.py")) as file:
            theirs = re.findall(r'add\("--([a-z-]+)"', file.read())
        self.assertEqual(sorted(ours), sorted([*theirs, "help"]))

    def expect(self, args, status, out="", err=""):
        self.assertEqual(self.run_it(*args), (status, out, err))

    def on_terminal(self, *args):
        """Returns (status, standard output, standard error as a terminal shows it)."""
        terminal, other = pty.openpty()
        p = subprocess.Popen([EXE, *args], stdout=subprocess.PIPE, stderr=other, env=self.env, cwd=self.root)
        os.close(other)
        seen = b""
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        os.close(terminal)
        out = p.stdout.read()
        p.stdout.close()
        return p.wait(), out.decode(), seen.decode()

    def make_set(self):
        for i in range(3):
            self.write(f"set/cat/{i}.png", png(8, 8, 300))
        self.write("set/dog/0.png", png(16, 16, 5000))
