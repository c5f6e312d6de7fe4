#!/usr/bin/env python3
"""headrace cache: exact output for real segments, with users that live and are killed."""
import json
import os
import re
import subprocess
import unittest

from harness import EXE, CliCase, jpeg, png

USER = os.environ["HEADRACE_CACHE_USER"]
NO_ITEMS = dict.fromkeys(["encoded", "coefficients", "planes", "indexed", "waveform", "waveform16"], 0)
MEMORY = r"\d+(\.\d+)? [KMG]?i?B"


class Cache(CliCase):
    def setUp(self):
        super().setUp()
        self.own = os.path.join(self.place, f"headrace-{os.geteuid()}")

    def use(self, spec, identity, count=3):
        """Starts a process that uses a cache until its input is closed."""
        p = subprocess.Popen([USER, spec, identity, str(count)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, env=self.env)
        self.addCleanup(self.end, p)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        return p

    def end(self, p):
        if p.stdin.closed:
            return
        p.stdin.close()
        p.stdout.close()
        p.wait()

    def make(self, spec, identity, count=3):
        p = self.use(spec, identity, count)
        self.end(p)
        self.assertEqual(p.returncode, 0)

    def read_json(self, *args, status=0):
        found, out, err = self.run_it("cache", *args, "--json")
        self.assertEqual((found, err), (status, ""))
        return json.loads(out)

    def matches(self, args, status, pattern, warning=""):
        found, out, err = self.run_it("cache", *args)
        self.assertEqual((found, err), (status, warning))
        self.assertRegex(out, r"\A" + pattern.removeprefix("\\\n") + r"\Z")

    def test_nothing(self):
        for args in (["list"], ["info"]):
            self.expect(["cache", *args], 0, "There are no caches.\n")
            self.assertEqual(self.read_json(*args), {"layout": 1, "caches": []})
        self.assertEqual(os.listdir(self.place), [])
        none = "there is no cache x; headrace cache list shows all caches\n"
        self.expect(["cache", "info", "x"], 3, "", "headrace cache info: " + none)
        self.expect(["cache", "drop", "x"], 3, "", "headrace cache drop: " + none)

    def test_list(self):
        self.make("shm:imagenet?size=256MiB", "/data/train", 5)
        p = self.use("shm:imagenet?size=256MiB&share=0.5", "/data/val")
        q = self.use("shm:b?size=8MiB", "/data/odd\x1b[1m")
        r = self.use("3MiB", "/data/own")
        self.matches(["list"], 0, rf"""\
NAME                    ITEMS      USED        OF USERS  DATASET
\(of a run\)                  3  3\.00 KiB  3\.00 MiB     1  /data/own
b                           3  3\.00 KiB  8\.00 MiB     1  /data/odd\\x1B\[1m
imagenet                    5  5\.00 KiB   256 MiB     0  /data/train
imagenet                    3  3\.00 KiB   128 MiB     1  /data/val

{MEMORY} of memory in 4 segments
""")
        for process in (p, q, r):
            self.end(process)
        self.assertEqual([c["users"] for c in self.read_json("list")["caches"]], [0, 0, 0])

    def test_info(self):
        p = self.use("shm:imagenet?size=8MiB", "/data/train", 5)
        (name,) = os.listdir(self.own)
        path = re.escape(os.path.join(self.own, name))
        text = rf"""\
imagenet: /data/train
  file          {path}
  in use by     1 process: {p.pid}
  holds         5 items, 5\.00 KiB of 8\.00 MiB \(0 %\)
  forms         5 encoded
  hits          5 of 10 \(50\.0 %\), which saved 4\.88 KiB of reads
  memory        {MEMORY}, with its index and staging; ({MEMORY}|none) in huge pages
(  NUMA nodes   .*
)?"""
        for args in ([], ["imagenet"], ["imagenet", "/data/train"]):
            self.matches(["info", *args], 0, text)
        self.expect(["cache", "info", "imagenet", "/data/val"], 3, "",
                    "headrace cache info: cache imagenet holds no samples of /data/val; "
                    "headrace cache list shows all datasets\n")
        q = self.use("shm:imagenet?size=8MiB", "/data/train", 5)
        _, out, _ = self.run_it("cache", "info", "imagenet")
        self.assertIn(f"  in use by     2 processes: {p.pid}, {q.pid}\n", out)
        self.end(p)
        self.end(q)
        _, out, _ = self.run_it("cache", "info", "imagenet")
        self.assertIn("  in use by     nobody\n", out)
        self.assertIn("  hits          15 of 20 (75.0 %), which saved 14.6 KiB of reads\n", out)

    def test_full(self):
        self.make("shm:a?size=4KiB", "x", 6)
        _, out, _ = self.run_it("cache", "info", "a")
        self.assertIn("  holds         4 items, 4.00 KiB of 4.00 KiB (100 %)\n", out)
        self.assertIn("  full          4 times an item did not fit\n", out)

    def test_json(self):
        p = self.use("shm:imagenet?size=8MiB&share=0.5", "/data/train", 5)
        (one,) = self.read_json("list")["caches"]
        (same,) = self.read_json("info", "imagenet")["caches"]
        self.assertEqual(one, same)
        memory = one.pop("allocated_bytes")
        self.assertGreater(memory, 1 << 16)
        self.assertIn(one.pop("huge_bytes"), range(memory + 1))
        self.assertLessEqual(sum(one.pop("node_bytes")), memory)
        self.assertTrue(one.pop("path").startswith(os.path.join(self.own, "imagenet.")))
        unknown = dict.fromkeys(NO_ITEMS)
        self.assertEqual(one, {
            "name": "imagenet", "dataset": "/data/train", "damaged": False, "problem": None,
            "size_bytes": 8 << 20, "budget_bytes": 4 << 20, "used_bytes": 5 * 1024,
            "items": {**NO_ITEMS, "encoded": 5}, "staged": 0,
            "source_bytes": 5000, "hits": 5, "misses": 5, "saved_bytes": 5000, "refused": 0, "foreign": 0,
            "users": 1, "pids": [p.pid], "on_disk": False, "orders": 0, "evicted": 0, "form": "encoded", "form_asked": "auto",
            "prepare_us": unknown, "convert_us": unknown, "growth": unknown, "read_us": None,
        })

    def test_drop(self):
        self.make("shm:a?size=256MiB", "/data/x", 3)
        self.make("shm:a?size=256MiB", "/data/y", 3)
        p = self.use("shm:a?size=256MiB", "/data/z", 3)
        self.expect(["cache", "drop", "a", "--dataset", "/data/w"], 3, "",
                    "headrace cache drop: cache a holds no samples of /data/w; "
                    "headrace cache list shows all datasets\n")
        self.matches(["drop", "a", "--dataset", "/data/x"], 0,
                     f"a: 1 segment dropped, {MEMORY} of memory freed\n")
        self.matches(["drop", "a"], 1,
                     f"a: 1 segment dropped, {MEMORY} of memory freed\n"
                     "a: 1 segment is in use and kept; --force drops segments in use, too\n")
        self.expect(["cache", "drop", "a"], 1,
                    "a: 1 segment is in use and kept; --force drops segments in use, too\n")
        self.assertEqual(self.read_json("drop", "a", status=1),
                         {"layout": 1, "name": "a", "freed_bytes": 0, "left": 1})
        self.matches(["drop", "a", "--force"], 0,
                     "a: 1 segment dropped, 0 B of memory freed\n"
                     f"a: {MEMORY} are in use, and will be freed when their users end\n")
        self.assertEqual(os.listdir(self.place), [])
        self.end(p)
        self.assertEqual(p.returncode, 0)
        self.make("shm:a?size=256MiB", "/data/x", 3)
        dropped = self.read_json("drop", "a")
        self.assertGreater(dropped["freed_bytes"], 1 << 16)
        self.assertEqual(dropped["left"], 0)

    def test_killed(self):
        p = self.use("3MiB", "/data/own")
        self.assertEqual(len(self.read_json("list")["caches"]), 1)
        p.kill()
        p.wait()
        self.expect(["cache", "list"], 0, "There are no caches.\n")
        self.assertEqual(os.listdir(self.place), [])

    def test_damaged(self):
        self.make("shm:a?size=8MiB", "/data/x")
        (name,) = os.listdir(self.own)
        path = os.path.join(self.own, name)
        with open(path, "r+b") as f:
            f.seek(100)
            f.write(b"scribble")
        warning = (
            "headrace cache list: a segment is damaged: the next start makes it again, headrace cache "
            "drop removes it; headrace cache info says more\n"
        )
        self.matches(["list"], 0, rf"""\
NAME                    ITEMS      USED        OF USERS  DATASET
a                     damaged                         0  {re.escape(path)}

{MEMORY} of memory in 1 segment
""", warning)
        self.matches(["info", "a"], 1, rf"""\
a
  file          {re.escape(path)}
  damaged       the cache's segment {re.escape(path)} is damaged in its header
  memory        {MEMORY}; the next start makes it again, headrace cache drop removes it
""")
        (one,) = self.read_json("info", "a", status=1)["caches"]
        self.assertTrue(one["damaged"])
        self.assertIn("damaged in its header", one["problem"])
        self.matches(["drop", "a"], 0, f"a: 1 segment dropped, {MEMORY} of memory freed\n")

    def test_refused(self):
        os.mkdir(self.own, 0o755)
        os.chmod(self.own, 0o755)
        status, out, err = self.run_it("cache", "list")
        self.assertEqual((status, out), (3, ""))
        self.assertIn("is open to others (mode 0755): chmod 700, or remove it\n", err)

    # warm

    def make_photographs(self, count=40):
        for i in range(count):
            self.write(f"set/{'cat' if i % 2 else 'dog'}/{i:04d}.jpg", jpeg(40 + i % 50, 30 + i % 40, i))
        self.write("set/dog/a.png", png(9, 9, 700))

    def warm(self, *args, status=0):
        found, out, err = self.run_it("cache", "warm", *args, "--json")
        self.assertEqual(found, status, err)
        return json.loads(out)

    def test_warm(self):
        self.make_photographs()
        spec = "shm:photographs?size=64MiB&form=encoded"
        status, out, err = self.run_it("cache", "warm", spec, "set", "--jobs", "2")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, rf"""\Aset: 41 of 41 samples are cached
  {MEMORY}: 41 encoded
  \d+\.\d s, {MEMORY} read, \d+\.\d MB/s
\Z""")
        (one,) = self.read_json("info", "photographs", "set")["caches"]
        self.assertEqual(one["dataset"], os.path.join(self.root, "set"))
        self.assertEqual(one["items"], {**NO_ITEMS, "encoded": 41})
        again = self.warm(spec, "set")
        self.assertEqual((again["samples"], again["cached"], again["read_bytes"], again["bad"]), (41, 41, 0, 0))
        self.assertEqual(self.run_it("cache", "drop", "photographs", "--dataset", "set")[0], 0)
        self.assertEqual(os.listdir(self.place), [])

    def test_warm_forms(self):
        self.make_photographs()
        for form in ("coefficients", "planes", "indexed"):
            report = self.warm(f"shm:p?size=64MiB&form={form}", "set")
            files = 0 if form == "planes" else 1  # a PNG can only have planes
            self.assertEqual(report["items"], {**NO_ITEMS, "encoded": files, form: 41 - files})
            _, out, _ = self.run_it("cache", "info", "p")
            text = f"{41 - files} {form}" + ", 1 encoded" * files
            self.assertIn(f"  forms         {text}\n", out)
            self.run_it("cache", "drop", "p")
        # without a form: the fastest for which there is room
        report = self.warm("shm:p?size=64MiB", "set")
        self.assertEqual(report["items"], {**NO_ITEMS, "planes": 41})

    def test_warm_small(self):
        self.make_photographs()
        report = self.warm("shm:p?size=4KiB&form=encoded", "set")
        self.assertLess(report["cached"], 41)
        _, out, _ = self.run_it("cache", "warm", "shm:p?size=4KiB&form=encoded", "set")
        self.assertIn("  the others do not fit: training reads them from storage\n", out)

    def test_warm_wrong(self):
        self.make_photographs(2)
        for args, message in (
            (["64MiB", "set"], "shm:NAME?size="),
            (["shm:x", "set"], "shm:NAME needs a size: write shm:x?size=64GiB"),
            (["shm:x?size=900TiB", "set"], "or write a smaller size"),
            (["shm:x?size=64MiB", "none"], "none"),
        ):
            status, out, err = self.run_it("cache", "warm", *args)
            self.assertEqual((status, out), (3, ""))
            self.assertIn(message, err)
        self.assertEqual(os.listdir(self.place), [])

    def test_interrupted(self):
        for i in range(3000):
            self.write(f"set/a/{i:05d}.png", png(9, 9, 20000))
        spec = "shm:p?size=256MiB"

        def begun():
            caches = self.read_json("list")["caches"]
            return caches and sum(caches[0]["items"].values()) >= 20

        for _ in range(10):
            ended = self.interrupt("cache", "warm", spec, "set", "--jobs", "1", begun=begun)
            if ended:
                break
            self.run_it("cache", "drop", "p")  # it ended before that could be observed
        status, out, err = ended
        self.assertEqual((status, out), (130, b""))
        self.assertTrue(err.decode().endswith(
            "headrace cache warm: interrupted; run the same command again to continue\n"), err)
        (one,) = self.read_json("list")["caches"]
        report = self.warm(spec, "set")
        self.assertEqual(report["cached"], 3000)
        self.assertLess(report["read_bytes"], 3000 * 20000)
        self.assertEqual(report["read_bytes"], (3000 - sum(one["items"].values())) * 20000)

    def test_on_terminal(self):
        self.make_photographs()
        status, out, seen = self.on_terminal("cache", "warm", "shm:p?size=64MiB", "set")
        self.assertEqual(status, 0, seen)
        self.assertIn("%", seen)
        _, _, seen = self.on_terminal("cache", "warm", "shm:p?size=64MiB", "set", "--no-progress")
        self.assertNotIn("%", seen)

    # command line

    def test_wrong_arguments(self):
        for args, message in (
            (["lst"], "cache: unknown verb lst; did you mean list; see headrace cache --help"),
            (["frobnicate"], "cache: unknown verb frobnicate; see headrace cache --help"),
            (["list", "x"], "cache list: one argument too many: x; see headrace cache list --help"),
            (["list", "--jsno"], "cache list: unknown option --jsno; did you mean --json; see headrace cache list --help"),
            (["drop"], "cache drop: an argument is missing; usage: headrace cache drop NAME [options]"),
            (["drop", "x", "--dataset"], "cache drop: --dataset needs a value: --dataset D"),
            (["warm", "64MiB"], "cache warm: an argument is missing; usage: headrace cache warm SPEC DATASET [options]"),
            (["warm", "a", "b", "--jobs", "0"], "cache warm: --jobs 0: it must be a number from 1 to 256"),
            (["info", "a", "b", "c"], "cache info: one argument too many: c; see headrace cache info --help"),
        ):
            self.expect(["cache", *args], 2, "", f"headrace {message}\n")

    def test_help(self):
        status, out, err = self.run_it("cache", "--help")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(self.run_it("cache"), (2, "", out))
        for verb in ("list", "info", "warm", "drop", "servers"):
            self.assertIn(f"\n  {verb} ", out)
            status, text, err = self.run_it("cache", verb, "--help")
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(text.startswith(f"Usage: headrace cache {verb} "))
            self.assertIn("\nExample:\n  headrace cache " + verb, text)
            self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)
        self.assertTrue(all(len(line) <= 80 for line in out.splitlines()), out)


if __name__ == "__main__":
    unittest.main()
