#!/usr/bin/env python3
"""headrace memory: the Python that it finds for a command, and how it starts it (a stand-in for the
package reports that); report, diff and import, on records with known times and sizes."""
import json
import os
import resource
import struct
import subprocess
import sys
import unittest

from harness import EXE, CliCase

MAKE = os.environ["HEADRACE_MEMORY_MAKE"]
MAIN = b"import sys\nprint(sys.executable)\nprint(sys.argv[1:])\nsys.exit(9)\n"


class Record(CliCase):
    def setUp(self):
        super().setUp()
        for name in ("__init__.py", "memory/__init__.py", "memory/launch.py"):
            self.write(f"site/headrace/{name}")
        self.write("site/headrace/memory/__main__.py", MAIN)
        self.env["PYTHONPATH"] = os.path.join(self.root, "site")
        self.env.pop("HEADRACE_PYTHON", None)

    def test_the_command_line_is_passed_on(self):
        words = ["--out", "x.hrm", "--limit=4GiB", "--stacks", "--", sys.executable, "train.py", "--", "--lr"]
        self.expect(["memory", "record", *words], 9, f"{sys.executable}\n{words}\n")
        # without --, the first word that is not an option begins the command
        words = ["--iterations", "3", sys.executable, "train.py", "--iterations", "x"]
        begun = [*words[:2], "--", *words[2:]]
        self.expect(["memory", "record", *words], 9, f"{sys.executable}\n{begun}\n")

    def test_no_python(self):
        self.env["HEADRACE_PYTHON"] = "/nonexistent/python"
        self.expect(
            ["memory", "record", "--", "train"], 3, "",
            "headrace memory record: no Python was found that has the package headrace; tried:\n"
            "  /nonexistent/python: it cannot be started: No such file or directory\n"
            "Install the package (Python 3.11 or newer) where the script's torch is, or name a\n"
            "Python that has it: HEADRACE_PYTHON=/path/to/python headrace memory record ...\n")

    def test_usage(self):
        see = "; see headrace memory --help\n"
        status, out, err = self.run_it("memory")
        self.assertEqual((status, out), (2, ""))
        self.assertTrue(err.startswith("Usage: headrace memory VERB"))
        status, out, err = self.run_it("memory", "--help")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("headrace memory record -- python train.py", out)
        self.expect(["memory", "recrod"], 2, "",
                    f"headrace memory: unknown verb recrod; did you mean record{see}")
        missing = ("headrace memory record: a command to record is missing: headrace memory record "
                   "-- python train.py\n")
        self.expect(["memory", "record"], 2, "", missing)
        self.expect(["memory", "record", "--stacks", "--"], 2, "", missing)
        self.expect(["memory", "record", "--stakcs", "--", "x"], 2, "",
                    "headrace memory record: unknown option --stakcs; did you mean --stacks; see "
                    "headrace memory record --help\n")
        self.expect(["memory", "record", "--limit", "4 apples", "--", "x"], 2, "",
                    "headrace memory record: --limit 4 apples: it must be a size (4GiB, 500MB) or "
                    "bytes\n")
        self.expect(["memory", "record", "--iterations", "-1", "--", "x"], 2, "",
                    "headrace memory record: --iterations -1: it must be a number from 0 to "
                    "1073741824\n")

    def test_help(self):
        for verb in ("record", "report", "diff", "import"):
            status, out, err = self.run_it("memory", verb, "--help")
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out.startswith(f"Usage: headrace memory {verb} "))
            self.assertIn(f"Example:\n  headrace memory {verb}", out)
            self.assertLessEqual(max(map(len, out.splitlines())), 80)

    def test_both_sides_know_the_same_options(self):
        self.same_options("memory", "record")


class Results(CliCase):
    def make(self, name, batch=64, iterations=8, how=""):
        subprocess.run([MAKE, os.path.join(self.root, name), str(batch), str(iterations), how], check=True)
        return name

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            return file.read()

    def change(self, name, offset, data):
        with open(os.path.join(self.root, name), "r+b") as file:
            file.seek(offset)
            file.write(data)

    def test_report(self):
        """At the peak: parameters, gradient, input and activation, 40000 x 2 + 600 x 64 bytes."""
        self.make("run.hrm")
        status, out, err = self.run_it("memory", "report", "run.hrm", "--json")
        self.assertEqual((status, err), (0, ""))
        found = json.loads(out)
        device = found["devices"][0]
        self.assertEqual(device["peak_bytes"], 2 * 40000 + 600 * 64)
        self.assertEqual(device["peak"], {"parameter": 40000, "gradient": 40000, "input": 25600,
                                          "activation": 12800})
        # An input, an activation and a gradient in each of 8 iterations, and the parameters.
        self.assertEqual(device["blocks"], 1 + 3 * 8)
        self.assertEqual(found["run"]["events"], 2 + 8 * 18)
        self.assertEqual(found["run"]["accesses"], 8 * 8)
        self.assertEqual(found["pattern"]["marked"], 8)
        self.assertEqual(found["intervals"]["h2d_bytes_per_s"], 12e9)
        status, out, _ = self.run_it("memory", "report", "run.hrm", "--json", "--h2d", "6.3GB/s", "--d2h", "6.4GB/s")
        rates = json.loads(out)["intervals"]
        self.assertEqual((rates["h2d_bytes_per_s"], rates["d2h_bytes_per_s"]), (6.3e9, 6.4e9))
        status, out, err = self.run_it("memory", "report", "run.hrm")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("116 KiB on cpu", " ".join(out.split()))
        self.assertLessEqual(max(map(len, out.splitlines())), 80)

    def test_the_page(self):
        self.make("run.hrm")
        self.expect(["memory", "report", "run.hrm", "--page", "p.html"], 0, "")
        self.expect(["memory", "report", "run.hrm", "--html=q.html"], 0, "")
        pages = [self.read(name) for name in ("p.html", "q.html")]
        self.assertTrue(pages[0].lstrip().lower().startswith("<!doctype html>"))
        self.assertEqual(pages[0], pages[1])
        status, out, err = self.run_it("memory", "report", "run.hrm", "--page", "-")
        self.assertEqual((status, out, err), (0, pages[0], ""))
        status, out, err = self.run_it("memory", "report", "run.hrm", "--page", "r.html", "--text")
        self.assertEqual((status, out[:8], err), (0, "At its p", ""))
        status, out, err = self.run_it("memory", "report", "run.hrm", "--page", "none/p.html")
        self.assertEqual((status, out), (3, ""))
        self.assertIn("none/p.html", err)

    def test_several(self):
        for batch in (16, 32, 64):
            self.make(f"b{batch}.hrm", batch)
        names = ["b16.hrm", "b32.hrm", "b64.hrm"]
        status, out, err = self.run_it("memory", "report", *names, "--json")
        self.assertEqual((status, err), (0, ""))
        peaks = [found["devices"][0]["peak_bytes"] for found in json.loads(out)]
        self.assertEqual(peaks, [80000 + 600 * batch for batch in (16, 32, 64)])
        status, out, err = self.run_it("memory", "report", *names)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("batch 16  batch 32  batch 64", out)
        self.assertIn("87.5 KiB  96.9 KiB   116 KiB", out)

    def test_diff(self):
        self.make("a.hrm", 32)
        self.make("b.hrm", 64)
        grown = 600 * 32 / (80000 + 600 * 32)
        status, out, err = self.run_it("memory", "diff", "a.hrm", "b.hrm", "--json")
        self.assertEqual((status, err), (0, ""))
        device = json.loads(out)["devices"][0]
        self.assertEqual(device["peak_bytes"], [99200, 118400])
        self.assertAlmostEqual(device["growth"], grown)
        status, out, err = self.run_it("memory", "diff", "a.hrm", "b.hrm")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("a.hrm", out)
        status, out, err = self.run_it("memory", "diff", "a.hrm", "b.hrm", "--fail-above", "19")
        self.assertEqual(
            (status, err),
            (1, "headrace memory diff: the peak grew by 19.4 %, which is more than 19 %\n"))
        for words in (["a.hrm", "b.hrm", "--fail-above", "20"], ["b.hrm", "a.hrm", "--fail-above", "0"],
                      ["a.hrm", "a.hrm", "--fail-above", "0"]):
            self.assertEqual(self.run_it("memory", "diff", *words)[0], 0)

    def test_missing_parts_are_reported(self):
        self.make("cut.hrm", how="cut")
        status, out, err = self.run_it("memory", "report", "cut.hrm", "--json")
        self.assertEqual(
            (status, err),
            (0, "headrace memory report: cut.hrm is incomplete: its process was killed, or is still "
                "recording\n"))
        self.assertEqual(json.loads(out)["run"]["events"], 2 + 8 * 18)
        self.make("full.hrm")
        self.change("full.hrm", 56, struct.pack("<Q", 1234))
        self.change("full.hrm", 72, struct.pack("<q", -28))
        self.expect_err(
            "full.hrm",
            "headrace memory report: full.hrm: the recording ended early: No space left on device\n"
            "headrace memory report: full.hrm: 1,234 events were lost\n")
        # Two extents: of texts and of events, whichever began first.
        self.make("torn.hrm", iterations=700)
        os.truncate(os.path.join(self.root, "torn.hrm"), 4096 + 2 * 262144 + 64 + 32 * 100 + 5)
        status, out, err = self.run_it("memory", "report", "torn.hrm")
        self.assertEqual(
            (status, err),
            (1, "headrace memory report: torn.hrm is damaged: the file ends within a piece (at byte "
                "528384); about 135 KiB are left out\n"))
        self.assertIn("At the peak", out)
        self.assertEqual(self.run_it("memory", "report", "cut.hrm", "torn.hrm", "--json")[0], 1)
        self.assertEqual(self.run_it("memory", "diff", "torn.hrm", "torn.hrm")[0], 1)

    def expect_err(self, name, err):
        found = self.run_it("memory", "report", name)
        self.assertEqual((found[0], found[2]), (0, err))

    def test_bad_files(self):
        self.make("run.hrm")
        self.write("letter", b"dear reader")
        self.write("empty")
        self.make("none.hrm", how="none")
        self.make("later.hrm")
        self.change("later.hrm", 8, struct.pack("<I", 2))
        os.mkdir(os.path.join(self.root, "folder"))
        for name, said in (
            ("nowhere.hrm", "nowhere.hrm: No such file or directory"),
            ("letter", "letter"),
            ("empty", "empty"),
            ("none.hrm", "none.hrm has no events"),
            ("later.hrm", "later.hrm is a record of version 2; this library reads version 1: use the "
                          "one that recorded it"),
            ("folder", "folder"),
        ):
            for words in (["report", name], ["report", "run.hrm", name], ["diff", "run.hrm", name]):
                status, out, err = self.run_it("memory", *words)
                self.assertEqual((status, out), (3, ""), words)
                self.assertTrue(err.startswith(f"headrace memory {words[0]}: "), err)
                self.assertIn(said, err)
                self.assertEqual(err.count("\n"), 1)

    def test_import(self):
        """A raw timeline: a block from before, two that are allocated, one of which is freed."""
        rows = [[-1, 1, 1000, 0], [10, 2, 400, 4], [20, 2, 600, 5], [30, 4, -400, 4]]
        self.write("raw.json", json.dumps(rows).encode())
        self.expect(["memory", "import", "raw.json", "raw.hrm"], 0,
                    "raw.hrm: headrace memory report analyses it\n")
        for name in ("raw.hrm", "raw.json"):
            status, out, err = self.run_it("memory", "report", name, "--json")
            self.assertEqual((status, err), (0, ""))
            found = json.loads(out)
            self.assertEqual(found["devices"][0]["peak_bytes"], 2000)
            self.assertEqual(found["devices"][0]["end_bytes"], 1600)
        self.write("letter", b"dear reader")
        for words, said in (
            (["letter", "a.hrm"], "letter"),
            (["nowhere", "a.hrm"], "nowhere: No such file or directory"),
            (["raw.json", "letter"], "letter exists and is not a memory record, so it is not replaced"),
            (["raw.json", "none/a.hrm"], "none/a.hrm"),
        ):
            status, out, err = self.run_it("memory", "import", *words)
            self.assertEqual((status, out), (3, ""), words)
            self.assertIn(said, err)
        self.assertFalse(os.path.exists(os.path.join(self.root, "a.hrm")))

    def test_a_failed_import_leaves_nothing(self):
        """For any limit on the bytes written: none, a header, a part."""
        rows = [[-1, 1, 1000, 0]] + [[i, 2, 400, 4] for i in range(20000)]
        self.write("raw.json", json.dumps(rows).encode())
        before = sorted(os.listdir(self.root))
        with open(EXE, "rb") as file:
            # ThreadSanitizer's runtime writes a small file of its own.
            sizes = (300_000,) if b"__tsan_init" in file.read() else (0, 4096, 300_000)
        for most in sizes:
            done = subprocess.run(
                [EXE, "memory", "import", "raw.json", "a.hrm"], capture_output=True, text=True,
                cwd=self.root, env=self.env,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
            self.assertEqual((done.returncode, done.stdout), (3, ""), most)
            self.assertIn("File too large", done.stderr)
            self.assertEqual(sorted(os.listdir(self.root)), before)

    def test_wrong_words(self):
        self.expect(["memory", "report"], 2, "",
                    "headrace memory report: an argument is missing; usage: headrace memory report "
                    "FILE... [options]\n")
        for rate in ("fast", "x2", "1GB/s,2GB/s", "0GB/s"):
            self.expect(["memory", "report", "x", "--h2d", rate], 2, "",
                        f"headrace memory report: --h2d {rate}: it must be a speed (12GB/s)\n")
        self.expect(["memory", "diff", "a"], 2, "",
                    "headrace memory diff: an argument is missing; usage: headrace memory diff "
                    "BEFORE AFTER [options]\n")
        self.expect(["memory", "diff", "a", "b", "c"], 2, "",
                    "headrace memory diff: one argument too many: c; see headrace memory diff --help\n")
        self.expect(["memory", "diff", "a", "b", "--fail-above", "-1"], 2, "",
                    "headrace memory diff: --fail-above -1: it must be a number, 0 or more\n")

    def test_output_that_cannot_be_written(self):
        self.make("run.hrm")
        with open("/dev/full", "w") as full:
            for words in (["report", "run.hrm"], ["report", "run.hrm", "--json"], ["diff", "run.hrm", "run.hrm"]):
                found = subprocess.run([os.environ["HEADRACE_EXE"], "memory", *words], stdout=full,
                                       stderr=subprocess.PIPE, env=self.env, cwd=self.root, timeout=600)
                self.assertEqual(found.returncode, 3)
                self.assertTrue(found.stderr)


if __name__ == "__main__":
    unittest.main()
