#!/usr/bin/env python3
"""headrace pack and unpack: exact output, exit statuses, Ctrl-C and continuing."""
import filecmp
import json
import os
import re
import struct
import sys
import tarfile
import unittest

from harness import EXE, CliCase, jpeg, png


def wav(rate, channels, frames):
    """A WAV file of 16 bits."""
    data = b"".join((i * 37 % 2000).to_bytes(2, "little") * channels for i in range(frames))
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, channels, rate,
                       rate * channels * 2, channels * 2, 16)
    return head + b"data" + struct.pack("<I", len(data)) + data


class Pack(CliCase):
    def make_photographs(self, count=6):
        for i in range(count):
            self.write(f"set/{'cat' if i % 2 else 'dog'}/{i:04d}.jpg", jpeg(40 + i % 50, 30 + i % 40, i))

    def read(self, name):
        with open(os.path.join(self.root, name), "rb") as f:
            return f.read()

    def pack(self, *args):
        status, out, err = self.run_it("pack", *args, "--json")
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def test_text(self):
        self.make_photographs()
        self.write("set/dog/a.png", png(9, 9))
        status, out, err = self.run_it("pack", "set", "set.hrpack")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(
            out,
            r"""\Aset\.hrpack
  7 images, \d\.\d\d KiB, \d+\.\d\d times the \d\.\d\d KiB of the image files
  coefficients              6     \d\.\d\d KiB
  encoded                   1        \d+ B
    1 encoded: not a JPEG
  \d+\.\d s, \d+ images/s, \d+\.\d MB/s of image files
\Z""",
        )
        status, info, err = self.run_it("pack", "--info", "set.hrpack")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(info.splitlines(), out.splitlines()[:-1])
        status, checked, err = self.run_it("pack", "--verify", "set.hrpack")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(checked, info + "\nEvery checksum is correct and every image decodes.\n")

    def test_json_and_forms(self):
        self.make_photographs()
        self.write("set/dog/a.png", png(9, 9))
        for form in ("coefficients", "planes", "indexed", "encoded", "auto"):
            report = self.pack("set", "set.hrpack", "--form", form, "--force", "--jobs", "2")
            self.assertEqual(report["path"], "set.hrpack")
            self.assertEqual(report["verb"], "pack")
            self.assertEqual(report["samples"], 7)
            self.assertEqual(report["bytes"], os.path.getsize(os.path.join(self.root, "set.hrpack")))
            self.assertEqual(report["bad"], [])
            self.assertTrue(report["ok"])
            self.assertEqual(sum(f["samples"] for f in report["forms"].values()), 7)
            if form == "planes":
                self.assertEqual((report["forms"][form]["samples"], report["kept"]), (7, []))
            elif form in ("coefficients", "indexed"):
                self.assertEqual(report["forms"][form]["samples"], 6)
                self.assertEqual(report["encoded"]["format"], 1)
                (kept,) = report["kept"]
                self.assertEqual(kept["path"], "set/dog/a.png")
            elif form == "encoded":
                self.assertEqual(report["encoded"]["asked"], 7)
            info = self.pack("--info", "set.hrpack")
            for key in ("samples", "bytes", "source_bytes", "forms", "encoded"):
                self.assertEqual(info[key], report[key])

    def test_progressive_files_are_named(self):
        self.make_photographs()
        self.write("set/dog/p.jpg", jpeg(50, 40, 3, progressive=True))
        status, out, err = self.run_it("pack", "set", "set.hrpack", "--form", "indexed")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"(?m)^  indexed +7 ")
        self.assertRegex(
            out, r"(?s)\n\n1 progressive file is a baseline JPEG in the pack:\n.*set/dog/p\.jpg"
        )
        report = self.pack("set", "set.hrpack", "--form", "indexed", "--force")
        self.assertEqual([r["path"] for r in report["rewritten"]], ["set/dog/p.jpg"])
        self.assertEqual((report["kept"], report["bad"]), ([], []))
        self.assertEqual(self.run_it("unpack", "set.hrpack", "again")[0], 0)
        for name in ("dog/0000.jpg", "cat/0001.jpg"):
            self.assertEqual(self.read(f"again/{name}"), self.read(f"set/{name}"))
        self.assertIn(b"\xff\xc0", self.read("again/dog/p.jpg"))
        report = self.pack("again", "again.hrpack", "--form", "indexed")
        self.assertEqual(report["rewritten"], [])
        for form in ("coefficients", "encoded"):
            self.assertEqual(
                self.pack("set", "set.hrpack", "--form", form, "--force")["rewritten"], []
            )

    def test_pack_is_a_dataset(self):
        self.make_photographs()
        self.pack("set", "set.hrpack")
        status, out, err = self.run_it("scan", "set.hrpack", "--json", "--verify")
        self.assertEqual((status, err), (0, ""))
        scan = json.loads(out)
        self.assertEqual((scan["kind"], scan["samples"]), ("pack", 6))
        self.assertEqual([c["name"] for c in scan["classes"]], ["cat", "dog"])
        self.assertEqual([c["samples"] for c in scan["classes"]], [3, 3])
        self.assertIn("6 images of a pack, 2 classes", self.run_it("scan", "set.hrpack")[1])

    def test_tar_files_are_a_dataset(self):
        self.make_photographs()
        with tarfile.open(os.path.join(self.root, "x.tar"), "w") as tar:
            tar.add(os.path.join(self.root, "set"), "set")
        scan = json.loads(self.run_it("scan", "x.tar", "--json")[1])
        self.assertEqual((scan["kind"], scan["samples"]), ("tar", 6))
        self.assertEqual([c["name"] for c in scan["classes"]], ["cat", "dog"])
        self.assertEqual(self.pack("x.tar", "x.hrpack")["samples"], 6)
        self.assertEqual(self.run_it("pack", "--verify", "x.hrpack")[0], 0)

    def test_parquet_tables_are_a_dataset(self):
        try:
            import pyarrow as arrow
            import pyarrow.parquet as parquet
        except ImportError:
            self.skipTest("pyarrow is not installed")
        images = [jpeg(50, 40, seed) for seed in range(4)]
        os.mkdir(os.path.join(self.root, "tables"))
        for i in (0, 2):
            parquet.write_table(
                arrow.table(
                    {
                        "image": images[i : i + 2],
                        "thumb": [image + b"1" for image in images[i : i + 2]],
                        "label": [i, -i],
                        "fine": [5, 6],
                    }
                ),
                os.path.join(self.root, f"tables/train-{i}.parquet"),
                compression={"image": "none", "thumb": "none", "label": "snappy", "fine": "none"},
            )
        scan = json.loads(self.run_it("scan", "tables", "--json", "--verify")[1])
        self.assertEqual((scan["kind"], scan["samples"], scan["ok"]), ("parquet", 4, True))
        self.assertEqual([c["label"] for c in scan["classes"]], [-2, 0, 2])
        scan = json.loads(
            self.run_it("scan", "tables/train-2.parquet", "--json", "--label", "fine")[1]
        )
        self.assertEqual([c["label"] for c in scan["classes"]], [5, 6])
        thumbs = json.loads(self.run_it("scan", "tables", "--json", "--image", "thumb")[1])
        self.assertEqual(thumbs["bytes"], sum(len(image) + 1 for image in images))
        self.assertIn("no column fine of images", self.run_it("scan", "tables", "--image", "fine")[2])
        self.assertIn("4 images of Parquet tables", self.run_it("scan", "tables/*.parquet")[1])
        self.assertEqual(self.pack("tables", "x.hrpack", "--form", "encoded")["samples"], 4)
        self.assertEqual(self.run_it("unpack", "x.hrpack", "files")[0], 0)
        self.assertEqual(
            self.read("files/list.txt").decode(),
            "train-0/000000.jpg\t0\ntrain-0/000001.jpg\t0\n"
            "train-2/000000.jpg\t2\ntrain-2/000001.jpg\t-2\n",
        )
        for i, image in enumerate(images):
            self.assertEqual(self.read(f"files/train-{i // 2 * 2}/00000{i % 2}.jpg"), image)

    def test_unpack(self):
        self.make_photographs()
        self.pack("set", "coded.hrpack", "--form", "encoded")
        self.expect(
            ["unpack", "coded.hrpack", "again"],
            0,
            "again: 6 image files, %.2f KiB\n"
            % (sum(len(self.read(f"set/{d}/{f}")) for d in ("cat", "dog") for f in os.listdir(f"{self.root}/set/{d}")) / 1024),
        )
        for directory in ("cat", "dog"):
            same = filecmp.dircmp(f"{self.root}/set/{directory}", f"{self.root}/again/{directory}")
            self.assertEqual((same.left_only, same.right_only, same.diff_files), ([], [], []))
            self.assertEqual(len(same.same_files), 3)
        # coefficients, as JPEG files again, give the very pack they came from, but for the sizes
        # of the image files
        self.pack("set", "one.hrpack")
        self.assertEqual(self.run_it("unpack", "one.hrpack", "files")[0], 0)
        self.pack("files", "two.hrpack")
        self.assertEqual(self.run_it("unpack", "two.hrpack", "more")[0], 0)
        for directory in ("cat", "dog"):
            for name in os.listdir(f"{self.root}/files/{directory}"):
                self.assertEqual(self.read(f"files/{directory}/{name}"), self.read(f"more/{directory}/{name}"))
        status, out, err = self.run_it("unpack", "one.hrpack", "files")
        self.assertEqual((status, out), (3, ""))
        self.assertRegex(err, r"files/(cat|dog)/\d+\.jpg is there already.*--force replaces it\n\Z")
        status, out, err = self.run_it("unpack", "one.hrpack", "files", "--force", "--json")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(json.loads(out)["forms"]["coefficients"]["samples"], 6)

    def test_coco(self):
        """Boxes of an annotation file are in the pack, and in no image file."""
        self.make_photographs()
        boxes = [
            {"id": i, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3 + i, 4]} for i in range(5)
        ]
        names = ["dog/0000.jpg", "cat/0001.jpg"]
        images = [{"id": i, "file_name": name} for i, name in enumerate(names)]
        whole = {"images": images, "annotations": boxes, "categories": [{"id": 3, "name": "cup"}]}
        self.write("boxes.json", json.dumps(whole).encode())
        report = self.pack("set", "boxes.hrpack", "--coco", "boxes.json")
        self.assertEqual((report["samples"], report["ok"]), (2, True))
        self.assertGreater(report["rows_bytes"], 5 * 16)
        with_points = self.pack("set", "set.hrpack", "--coco", "boxes.json", "--keypoints")
        self.assertEqual(with_points["samples"], 2)
        status, out, err = self.run_it("pack", "--info", "boxes.hrpack")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"\n  rows +\d+")
        status, out, err = self.run_it("unpack", "boxes.hrpack", "files")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("rows (boxes, labels and the like) are not written", out)
        self.check_scan_of_rows()
        whole["annotations"][2]["bbox"][2] = -1
        self.write("boxes.json", json.dumps(whole).encode())
        status, out, err = self.run_it("scan", "set", "--coco", "boxes.json")
        self.assertEqual((status, out), (3, ""))
        self.assertRegex(err, "annotation 2 of image 1")
        status, out, err = self.run_it("pack", "set", "wrong.hrpack", "--coco", "boxes.json")
        self.assertEqual((status, out), (3, ""))
        self.assertIn("annotation", err)

    def check_scan_of_rows(self):
        """What scan says of the file's rows, and of the pack that keeps them."""
        for args in (["set", "--coco", "boxes.json"], ["boxes.hrpack"]):
            status, out, err = self.run_it("scan", *args)
            self.assertEqual((status, err), (0, ""))
            self.assertIn(
                """
Rows of an image: 5 in all, mean 2.5, at most 5; 1 image without any
  boxes, labels, area, iscrowd, image_id

Rows of a class: mean 5.0, from 5 to 5
  cup                                                 5 100.0 %
""",
                out,
            )
            status, out, err = self.run_it("scan", *args, "--json")
            told = json.loads(out)
            self.assertEqual(told["classes"], [{"label": 3, "name": "cup", "rows": 5}])
            self.assertEqual(told["rows"]["columns"], ["boxes", "labels", "area", "iscrowd", "image_id"])
            self.assertEqual([told["rows"][k] for k in ("count", "most", "empty")], [5, 5, 1])
            self.assertEqual((told["samples"], told["unreadable"], told["ok"]), (2, [], True))

    def test_sounds(self):
        """A folder of sounds: scan, pack as files and as waveforms, verify, unpack."""
        for i in range(4):
            rate, channels = (8000, 2) if i % 2 else (16000, 1)
            self.write(f"set/{'ab'[i // 2]}/{i}.wav", wav(rate, channels, rate * (i + 1)))
        status, out, err = self.run_it("scan", "set", "--index", "none", "--json")
        self.assertEqual((status, err), (0, ""))
        sounds = json.loads(out)["sounds"]
        self.assertEqual([sounds[k] for k in ("known", "seconds", "shortest", "median", "longest")], [4, 10, 1, 2, 4])
        self.assertEqual(
            sounds["kinds"],
            [
                {"format": "WAV", "rate": 8000, "channels": 2, "samples": 2, "seconds": 6},
                {"format": "WAV", "rate": 16000, "channels": 1, "samples": 2, "seconds": 4},
            ],
        )
        status, out, err = self.run_it("scan", "set", "--index", "none", "--verify")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("4 sounds of a folder of sounds", out)
        self.assertIn("Length: 10.00 s in all, median 2.00 s, from 1.00 s to 4.00 s", out)
        self.assertRegex(out, r"WAV +8000 Hz  2 channels +2  50\.0 %  6\.00 s")
        self.assertIn("Every sound was read and decoded", out)
        files = self.pack("set", "files.hrpack")
        self.assertEqual((files["forms"]["encoded"]["samples"], files["encoded"]["format"]), (4, 4))
        waves = self.pack("set", "waves.hrpack", "--form", "waveform", "--rate", "8000", "--mono")
        self.assertEqual((waves["forms"]["waveform"]["samples"], waves["mono"], waves["rate"]), (4, True, 8000))
        status, out, err = self.run_it("pack", "--verify", "waves.hrpack")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("after Mono(), Resample(new_freq=8000)", out)
        self.assertIn("every sound decodes", out)
        self.assertEqual(self.run_it("unpack", "waves.hrpack", "out")[0], 0)
        status, out, err = self.run_it("scan", "out", "--index", "none", "--json")
        self.assertEqual([k["rate"] for k in json.loads(out)["sounds"]["kinds"]], [8000])
        self.assertTrue(os.path.exists(os.path.join(self.root, "out/a/0.wav.wav")))
        self.assertEqual(self.run_it("unpack", "files.hrpack", "again")[0], 0)
        self.assertEqual(self.read("again/b/3.wav"), self.read("set/b/3.wav"))
        self.write("set/b/bad.mp3", b"")
        status, out, err = self.run_it("scan", "set", "--index", "none")
        self.assertEqual((status, err), (1, ""))
        self.assertIn("bad.mp3: it is damaged or of a format that is not decoded", out)
        for options, message in (
            (("--form", "planes", "--rate", "8000"), "is of waveforms"),
            (("--form", "waveform", "--rate", "100"), "--rate 100"),
        ):
            status, out, err = self.run_it("pack", "set", "no.hrpack", *options)
            self.assertNotEqual(status, 0)
            self.assertIn(message, err)

    def test_wrong_arguments(self):
        for args, message in (
            ([], "an argument is missing; usage: headrace pack SRC DST.hrpack [options]"),
            (["a"], "DST is missing; usage: headrace pack SRC DST.hrpack"),
            (["a", "b", "c"], "one argument too many: c; see headrace pack --help"),
            (["--verify", "a", "b"], "--verify takes one pack; b is one argument too many"),
            (["--verify", "--info", "a"], "give either --verify or --info, not both"),
            (["a", "b", "--keypoints"], "--keypoints needs --coco"),
            (["a", "b", "--coco", "c", "--label", "d"],
             "--coco is for a folder of images, --label, --image and --sounds are not"),
            (["a", "b", "--coco", "c", "--sounds"],
             "--coco is for a folder of images, --label, --image and --sounds are not"),
            (["a", "b", "--form", "rgb"], "--form rgb: it must be one of coefficients|planes|indexed|encoded|waveform|waveform16|auto"),
            (["a", "b", "--max-growth", "0.5"], "--max-growth 0.5: it must be a number, 1 or more"),
            (["a", "b", "--max-growth", "1x"], "--max-growth 1x: it must be a number, 1 or more"),
        ):
            status, out, err = self.run_it("pack", *args)
            self.assertEqual((status, out), (2, ""))
            self.assertEqual(err.splitlines()[0], f"headrace pack: {message}")
        self.assertEqual(self.run_it("unpack", "a")[0], 2)

    def test_failures(self):
        self.make_photographs()
        self.expect(
            ["pack", "none", "x.hrpack"], 3, "", "headrace pack: cannot open none: No such file or directory\n"
        )
        self.pack("set", "set.hrpack")
        self.expect(
            ["pack", "set", "set.hrpack"], 3, "",
            "headrace pack: there is something at set.hrpack; give another path, or ask to overwrite it; "
            "--force replaces it\n",
        )
        status, _, err = self.run_it("pack", "--verify", "set/dog/0000.jpg")
        self.assertEqual((status, err), (3, "headrace pack: set/dog/0000.jpg is not a pack\n"))
        status, _, err = self.run_it("pack", "set", "nowhere/set.hrpack")
        self.assertEqual(status, 3)
        self.assertIn("cannot open nowhere/set.hrpack.partial: No such file or directory", err)

    def test_bad_images(self):
        self.make_photographs()
        self.write("set/dog/0002.jpg", jpeg(64, 64)[:200])
        status, out, err = self.run_it("pack", "set", "set.hrpack")
        self.assertEqual((status, out), (3, ""))
        self.assertIn("(set/dog/0002.jpg)", err)
        status, out, err = self.run_it("pack", "set", "set.hrpack", "--on-error", "skip")
        self.assertEqual((status, err), (1, ""))
        self.assertIn("\n1 image is bad:\n  set/dog/0002.jpg: ", out)
        self.assertIn("1 encoded: cannot be read or decoded", out)
        self.assertIn("  4 images were there already: an earlier run was continued\n", out)
        status, out, err = self.run_it("pack", "--verify", "set.hrpack")
        self.assertEqual((status, err), (1, ""))
        self.assertIn("\n1 image is bad:\n  set.hrpack:dog/0002.jpg: ", out)

    def test_damage(self):
        self.make_photographs()
        self.pack("set", "set.hrpack")
        data = bytearray(self.read("set.hrpack"))
        data[-200] ^= 1
        self.write("set.hrpack", data)
        status, out, err = self.run_it("pack", "--verify", "set.hrpack", "--json")
        self.assertEqual((status, err), (1, ""))
        found = json.loads(out)
        self.assertEqual(len(found["bad"]), 1)
        self.assertFalse(found["ok"])
        self.assertIn("its checksum differs", found["bad"][0]["reason"])
        status, _, err = self.run_it("unpack", "set.hrpack", "out")
        self.assertEqual(status, 3)
        self.assertIn("its checksum differs", err)
        status, out, err = self.run_it("unpack", "set.hrpack", "out2", "--on-error", "skip")
        self.assertEqual((status, err), (1, ""))
        self.assertIn("1 left out, damaged in the pack:\n", out)
        data[4100] ^= 1
        self.write("set.hrpack", data)
        status, _, err = self.run_it("pack", "--verify", "set.hrpack")
        self.assertEqual(status, 3)
        self.assertIn("set.hrpack: ", err)

    def make_slow_set(self, count):
        large = self.write("large.jpg", jpeg(2000, 2000))
        for i in range(count):
            link = os.path.join(self.root, f"set/cat/{i:04d}.jpg")
            os.makedirs(os.path.dirname(link), exist_ok=True)
            os.link(large, link)

    def test_interrupt_and_continue(self):
        self.make_slow_set(2000)
        args = ["pack", "set", "set.hrpack", "--jobs=1"]
        partial = f"{self.root}/set.hrpack.partial"
        ended = self.interrupt(*args, begun=lambda: os.path.exists(partial) and os.path.getsize(partial))
        self.assertEqual(
            ended,
            (130, b"", b"headrace pack: interrupted; run the same command again to continue\n"),
        )
        status, _, err = self.run_it("scan", "set.hrpack")
        self.assertEqual(status, 3)
        self.assertIn("only the unfinished set.hrpack.partial", err)
        status, _, err = self.run_it(*args, "--form", "planes")
        self.assertEqual(status, 3)
        self.assertTrue(err.endswith("; --restart starts over\n"))
        # the other options would take long: only those of this list are tested
        for i in range(8, 2000):
            os.unlink(f"{self.root}/set/cat/{i:04d}.jpg")
        status, _, err = self.run_it(*args)
        self.assertEqual(status, 3)
        self.assertIn("was begun for another dataset", err)
        self.assertEqual(self.pack("set", "set.hrpack", "--restart")["samples"], 8)
        self.assertFalse(os.path.exists(f"{self.root}/set.hrpack.partial"))

    def test_progress_on_a_terminal(self):
        self.make_slow_set(60)
        status, out, seen = self.on_terminal("pack", "set", "set.hrpack", "--jobs=1")
        self.assertEqual(status, 0)
        self.assertRegex(seen, r"\rpacking    \[#{10}\] 100 %  60  \d+/s, \d+\.\d MB/s")
        self.assertTrue(seen.endswith("\r\x1b[K"))
        for line in re.split("\r", re.sub("\x1b\\[K", "", seen)):
            self.assertLessEqual(len(line), 79)
        status, out, seen = self.on_terminal("unpack", "set.hrpack", "again", "--no-progress")
        self.assertEqual((status, seen), (0, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
