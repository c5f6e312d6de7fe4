#!/usr/bin/env python3
"""The headrace command: exact output, exit statuses, order, Ctrl-C, progress.

Runs the built command (HEADRACE_EXE) on folders made here. Needs only Python's standard library;
images are PNG files written by hand.
"""
import json
import os
import random
import re
import subprocess
import sys
import time
import unittest
from pathlib import Path

from harness import EXE, CliCase, png

VERSION = re.search(r"version: '([^']+)'", (
    Path(__file__).resolve().parents[2] / "meson.build").read_text()).group(1)

EXTENSIONS = (b".jpg", b".jpeg", b".png", b".ppm", b".bmp", b".pgm", b".tif", b".tiff", b".webp")


def escape(name):
    """Returns bytes as the command prints them."""
    text = name.decode("utf-8", "surrogateescape")
    return "".join(
        "".join("\\x%02X" % b for b in c.encode("utf-8", "surrogateescape"))
        if 0xDC80 <= ord(c) <= 0xDCFF or ord(c) < 32 or 0x7F <= ord(c) < 0xA0
        else c
        for c in text
    )


class Cli(CliCase):
    # verbs and options

    def test_usage(self):
        status, out, err = self.run_it()
        self.assertEqual((status, out), (2, ""))
        self.assertIn("Usage: headrace VERB", err)
        status, out, err = self.run_it("--help")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("headrace scan /data/train --verify", out)
        self.expect(["--version"], 0, f"headrace {VERSION}\n")
        self.expect(["scna"], 2, "", "headrace: unknown verb scna; did you mean scan; see headrace --help\n")
        for word in ("foo", "tip-top", "x", "cache-list"):
            self.expect([word], 2, "", f"headrace: unknown verb {word}; see headrace --help\n")
        for word, verb in (("san", "scan"), ("packs", "pack"), ("unpakc", "unpack"), ("memroy", "memory")):
            said = f"headrace: unknown verb {word}; did you mean {verb}; see headrace --help\n"
            self.expect([word], 2, "", said)
        self.expect(["frobnicate"], 2, "", "headrace: unknown verb frobnicate; see headrace --help\n")

    def test_help_of_verbs(self):
        for verb in ("agent", "pack", "scan", "top", "unpack", "version"):
            status, out, err = self.run_it(verb, "--help")
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out.startswith(f"Usage: headrace {verb} "))
            self.assertIn(f"Example:\n  headrace {verb}", out)
            self.assertLessEqual(max(map(len, out.splitlines())), 80)

    def test_wrong_options(self):
        for args, message in (
            (["."], None),
            ([], "an argument is missing; usage: headrace scan PATH [options]"),
            ([".", "b", "c"], "one argument too many: b; see headrace scan --help"),
            ([".", "--jsno"], "unknown option --jsno; did you mean --json; see headrace scan --help"),
            ([".", "-j"], "unknown option -j; see headrace scan --help"),
            ([".", "--json=1"], "--json takes no value"),
            ([".", "--threads"], "--threads needs a value: --threads N"),
            ([".", "--threads", "0"], "--threads 0: it must be a number from 1 to 256"),
            ([".", "--threads=2x"], "--threads 2x: it must be a number from 1 to 256"),
            ([".", "--keypoints"], "--keypoints needs --coco"),
            ([".", "--coco", "a", "--image", "b"],
             "--coco is for a folder of images, --label, --image and --sounds are not"),
            ([".", "--index", "here"], "--index here: it must be one of user|beside|none"),
        ):
            if message:
                self.expect(["scan", *args], 2, "", f"headrace scan: {message}\n")

    def test_version(self):
        status, out, _ = self.run_it("version")
        self.assertEqual(status, 0)
        self.assertRegex(out, rf"\Aheadrace {re.escape(VERSION)}\ninstructions  (avx512|avx2|portable)\n\Z")
        status, out, _ = self.run_it("version", "--json")
        self.assertEqual(status, 0)
        self.assertEqual(json.loads(out)["version"], VERSION)

    # scan

    def test_scan_text(self):
        self.make_set()
        self.expect(
            ["scan", "set"],
            0,
            """\
set
  4 images of an image folder, 2 classes, 5.76 KiB, 2 directories

Bytes of an image: mean 1.44 KiB, median 300 B, from 300 B to 4.88 KiB
  from    256 B            3  75.0 %  ################################
  ...
  from 4.00 KiB            1  25.0 %  ###########

Images of a class: mean 2.0, from 1 to 3
  cat                                                 3  75.0 %      900 B
  dog                                                 1  25.0 %   4.88 KiB
""",
        )

    def test_scan_json(self):
        self.make_set()
        status, out, err = self.run_it("scan", "set", "--json", "--index=none", "--verify")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(
            json.loads(out),
            {
                "layout": 1,
                "path": "set",
                "kind": "folder",
                "samples": 4,
                "bytes": 5900,
                "directories": 2,
                "classes": [
                    {"label": 0, "name": "cat", "samples": 3, "bytes": 900},
                    {"label": 1, "name": "dog", "samples": 1, "bytes": 5000},
                ],
                "size": {"mean": 1475, "median": 300, "smallest": 300, "largest": 5000},
                "histogram": [
                    {"from": 256, "to": 512, "samples": 3},
                    {"from": 4096, "to": 8192, "samples": 1},
                ],
                "unreadable": [],
                "verify": {"checked": 4, "bad": []},
                "index": None,
                "sounds": None,
                "rows": None, "requests": None,
                "ok": True,
            },
        )

    def test_bad_images(self):
        self.make_set()
        whole = png(40, 40)
        self.write("set/cat/cut.png", whole[: len(whole) // 2])
        self.write("set/dog/empty.jpg")
        self.write(b"set/dog/te\xffxt\n.jpg", b"no image at all\n" * 10)
        status, out, err = self.run_it("scan", "set", "--verify", "--threads", "2")
        self.assertEqual((status, err), (1, ""))
        lines = out.splitlines()
        at = lines.index("3 of 7 images are bad:")
        self.assertEqual(len(lines), at + 4)
        self.assertRegex(lines[at + 1], r"^  set/cat/cut\.png: .")
        self.assertEqual(lines[at + 2], "  set/dog/empty.jpg: the file is empty (0 bytes); restore or remove it")
        self.assertRegex(lines[at + 3], r"^  set/dog/te\\xFFxt\\x0A\.jpg: .")
        status, out, _ = self.run_it("scan", "set", "--verify", "--json")
        result = json.loads(out)
        self.assertEqual((status, result["ok"]), (1, False))
        self.assertEqual([b["index"] for b in result["verify"]["bad"]], [3, 5, 6])

    def test_empty_class_and_lost_file(self):
        self.make_set()
        os.makedirs(os.path.join(self.root, "set/eel"))
        os.symlink("nowhere", os.path.join(self.root, "set/dog/lost.png"))
        status, out, err = self.run_it("scan", "set")
        self.assertEqual((status, err), (1, ""))
        self.assertTrue(
            out.endswith(
                "\n1 class without an image:\n  eel\n"
                "\n1 file cannot be used:\n  set/dog/lost.png: No such file or directory\n"
            ),
            out,
        )

    def test_files_that_cannot_be_samples(self):
        """The scan itself detects them, by their contents and not by their names."""
        self.make_set()
        self.write("set/cat/empty.jpg")
        self.write("set/cat/new.bmp", b"\0\0\0\x1cftypavif" + bytes(40))
        self.write("set/dog/old.ppm", b"\xff\x0a" + bytes(60))
        self.write("set/dog/scan.tiff", b"II*\0" + bytes(60))
        self.write("set/dog/a.webp", png(40, 40))
        status, out, err = self.run_it("scan", "set")
        self.assertEqual((status, err), (1, ""))
        self.assertTrue(
            out.endswith(
                "\n4 files cannot be used:\n"
                "  set/cat/empty.jpg: the file is empty (0 bytes); restore or remove it\n"
                "  set/cat/new.bmp: this is AVIF; convert it to JPEG or PNG\n"
                "  set/dog/old.ppm: this is JPEG XL; convert it to JPEG or PNG\n"
                "  set/dog/scan.tiff: this is TIFF; convert it to JPEG or PNG\n"
            ),
            out,
        )
        status, out, _ = self.run_it("scan", "set", "--json")
        self.assertEqual((status, len(json.loads(out)["unreadable"])), (1, 4))

    def test_list(self):
        self.make_set()
        self.write("list.txt", b"set/cat/0.png\t7\n# a remark\nset/dog/0.png -1\n")
        status, out, err = self.run_it("scan", "list.txt", "--json")
        result = json.loads(out)
        self.assertEqual((status, err, result["kind"], result["bytes"]), (0, "", "list", 5300))
        self.assertEqual([(c["label"], c["name"]) for c in result["classes"]], [(-1, "-1"), (7, "7")])
        self.write("list.txt", b"set/cat/0.png\n")
        self.expect(
            ["scan", "list.txt"],
            3,
            "",
            "headrace scan: list.txt, line 1: it has one field; write the path, a tab and the label\n",
        )

    def test_failures(self):
        self.expect(["scan", "none"], 3, "", "headrace scan: cannot open none: No such file or directory\n")
        os.makedirs(os.path.join(self.root, "hollow"))
        self.expect(
            ["scan", "hollow"],
            3,
            "",
            "headrace scan: no class directory in hollow: an image folder has one directory per class "
            "directly under its root\n",
        )
        self.make_set()
        with open("/dev/full", "wb") as full:
            r = subprocess.run([EXE, "scan", "set"], stdout=full, stderr=subprocess.PIPE, env=self.env, cwd=self.root)
        self.assertEqual((r.returncode, r.stderr), (3, b"headrace scan: cannot write to standard output\n"))

    def test_many_classes_fit_80_columns(self):
        for i in range(20):
            self.write(f"set/{'very long name ' * 4}{i:02d}\u00e9/x.png", png(2, 2))
            for k in range(i):
                self.write(f"set/{'very long name ' * 4}{i:02d}\u00e9/{k}.png", png(2, 2))
        status, out, _ = self.run_it("scan", "set")
        self.assertEqual(status, 0)
        self.assertLessEqual(max(map(len, out.splitlines())), 80)
        self.assertIn("  ... 8 more; --classes lists all\n", out)
        self.assertEqual(sum(line.startswith("  very") for line in out.splitlines()), 12)
        status, out, _ = self.run_it("scan", "set", "--classes")
        self.assertEqual(sum(line.startswith("  very") for line in out.splitlines()), 20)

    def test_index(self):
        self.make_set()
        directories = [os.path.join(self.root, "set", name) for name in (".", "cat", "dog")]
        for path in directories:
            os.utime(path, (0, time.time() + 3600))  # too new, even on a slow machine

        def scan(*args):
            status, out, err = self.run_it("scan", "set", "--json", *args)
            self.assertEqual((status, err), (0, ""))
            return json.loads(out)

        status, _, err = self.run_it("scan", "set", "--verbose")
        self.assertEqual(status, 0)
        self.assertIn("no index of set is written yet", err)
        self.assertEqual(scan()["index"], {"path": None, "used": False})
        for path in directories:
            os.utime(path)
        time.sleep(2.1)  # until the folder's times can be trusted
        for policy, place in (("beside", os.path.join(self.root, "set/.headrace-index")), ("user", self.cache)):
            first, second = scan("--index", policy), scan("--index", policy)
            self.assertEqual(first["index"], {**second["index"], "used": False})
            self.assertTrue(second["index"]["used"])
            self.assertTrue(second["index"]["path"].startswith(place))
            self.assertEqual({**first, "index": 0}, {**second, "index": 0})
            self.assertEqual(os.stat(second["index"]["path"]).st_mode & 0o777, 0o600)
        self.write("set/cat/more.png", png(8, 8, 300))
        third = scan("--index", "beside")
        self.assertEqual((third["index"]["used"], third["samples"]), (False, 5))

    def test_order_is_that_of_os_walk(self):
        """The order of torchvision's ImageFolder, shown by --verify, because all images are bad."""
        chance = random.Random(5)
        pieces = [b"a", b"B", b"-", b".", b"1", b"10", "\u00e9".encode(), "\uff01".encode(), b"\xff", b"\xe2\x82",
                  "\U0001f600".encode(), b" ", b"_"]

        def name():
            return b"x" + b"".join(chance.choices(pieces, k=chance.randint(1, 4)))

        for _ in range(300):
            path = b"/".join(name() for _ in range(chance.randint(2, 4)))
            try:
                self.write(b"set/" + path + chance.choice([b".jpg", b".PNG", b".txt", b".Webp", b".jpeg"]), b"?")
            except (NotADirectoryError, IsADirectoryError):
                pass
        root = os.path.join(self.root, "set")
        expected = []
        for entry in sorted(e.name for e in os.scandir(root) if e.is_dir()):
            for place, _, files in sorted(os.walk(os.path.join(root, entry), followlinks=True)):
                expected += [
                    os.path.join(place, f) for f in sorted(files) if os.fsencode(f).lower().endswith(EXTENSIONS)
                ]
        expected = [escape(os.fsencode(p)) for p in expected]
        self.assertGreater(len(expected), 150)
        for threads in ("1", "3"):
            status, out, _ = self.run_it("scan", root, "--verify", "--json", "--threads", threads)
            self.assertEqual(status, 1)
            self.assertEqual([b["path"] for b in json.loads(out)["verify"]["bad"]], expected)

    # terminals and signals

    def make_slow_set(self, count):
        """Makes images that take a while: links to one large file."""
        large = self.write("large.png", png(600, 600))
        for i in range(count):
            link = os.path.join(self.root, f"set/cat/{i}.png")
            os.makedirs(os.path.dirname(link), exist_ok=True)
            if not os.path.exists(link):
                os.link(large, link)

    def test_interrupt(self):
        for count in (1000, 4000, 16000):  # until it takes long enough
            self.make_slow_set(count)
            ended = self.interrupt("scan", "set", "--verify", "--threads=1")
            if ended:
                break
        self.assertEqual(ended, (130, b"", b"headrace scan: interrupted\n"))

    def test_progress_on_a_terminal_only(self):
        self.make_slow_set(150)

        def on_terminal(*args):
            status, _, seen = self.on_terminal("scan", "set", "--verify", *args)
            self.assertEqual(status, 0)
            return seen

        seen = on_terminal()
        self.assertRegex(seen, r"\rverifying  \[#{30}\] 100 %  150")
        self.assertTrue(seen.endswith("\r\x1b[K"))
        for line in re.split("\r", re.sub("\x1b\\[K", "", seen)):
            self.assertLessEqual(len(line), 79)
        self.assertEqual(on_terminal("--no-progress"), "")
        self.assertEqual(self.run_it("scan", "set", "--verify")[2], "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
