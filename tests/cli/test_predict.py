#!/usr/bin/env python3
"""headrace predict: exact output for a run with known figures.

The run: a step of 100 ms for 64 samples on a GPU, 4 workers at 10 ms a sample (400/s), a disk of 20
MB/s for files of 100 kB (200/s), 16 cores.
"""
import json
import os
import subprocess
import tempfile
import unittest

from harness import CliCase

MAKE = os.environ["HEADRACE_STALLS_MAKE"]
PHASES = {"device": 0.095, "host": 0.1, "warm": 0.16, "cold": 0.32}


def segment(phase, number, begin):
    batches, jitter = 20, 1 + 0.004 * (number % 3 - 1)
    batch = PHASES[phase] * jitter
    real = phase in ("warm", "cold")
    return {
        "phase": phase, "round": number, "set": number, "alone_rank": -1, "batches": batches,
        "samples": batches * 64, "begin_s": begin, "elapsed_s": batches * batch,
        "process_cpu_s": batches * 0.01, "worker_cpu_s": 0.64 * batches if real else 0.0,
        "read_bytes": batches * 64 * 100000 if phase == "cold" else 0,
        "expected_bytes": batches * 64 * 100000 if real else None,
        "verified": True if real else None, "reason": "",
        "wait_s": [max(0.0, batch - 0.1)] * batches, "batch_s": [batch] * batches,
    }


def record():
    segments, begin = [], 0.0
    for number in range(6):
        for phase in PHASES:
            segments.append(segment(phase, number, begin))
            begin += segments[-1]["elapsed_s"]
    return {
        "headrace_stalls_record": 1, "run": "r", "rank": 0, "world_size": 1, "local_rank": 0,
        "local_world_size": 1, "host": "h", "command": ["python", "train.py"],
        "started": "2026-01-02T03:04:05Z", "ended": "precise",
        "machine": {"cores": 16, "cpu": "a CPU", "memory_bytes": 64 << 30,
                    "available_bytes": 50 << 30, "device": "a GPU"},
        "loader": {"kind": "torch", "class": "torch.utils.data.DataLoader", "workers": 4,
                   "batches_ahead": 8, "batch_size": 64, "cache_bytes": 0},
        "training": {"device": "cuda:0", "threads": 8, "warm_up_batches": 5},
        "dataset": {"name": "photos", "samples": 1000000, "bytes": 100e9, "sizes": [100000] * 10,
                    "filesystem": "ext4"},
        "phases": {}, "segments": segments,
        "drains": [{"phase": "warm", "cores": cores, "samples": 6400, "elapsed_s": 64 / min(cores, 4),
                    "cpu_s": 64.0, "read_bytes": 0} for cores in (16, 16, 8, 4, 2, 1)],
        "preparation": [{"phase": "warm", "samples": 64, "cpu_s": 0.64, "wall_s": 0.64,
                         "read_bytes": 0}] * 4,
        "storage": {"depths": [{"depth": d, "bytes_per_s": 20e6, "reads_per_s": 200.0,
                                "parts": [20e6] * 4}
                               for d in (1, 2, 4, 8)], "memory_bytes_per_s": 5e9},
        "headrace": {"recipe": "RandomResizedCrop(224)", "assumed": False, "forms": [
            {"form": "encoded", "cpu_s": 0.001, "bytes": 100000},
            {"form": "coefficients", "cpu_s": 0.0002, "bytes": 135000}]},
        "first_batch_s": 0.5, "notes": [], "files_written": [],
    }


def make(folder, **members):
    """Writes the result of a record with these members; returns its bytes."""
    with open(os.path.join(folder, "r.json"), "w") as file:
        json.dump({**record(), **members}, file)
    subprocess.run([MAKE, "stalls.json", "r.json"], cwd=folder, check=True)
    with open(os.path.join(folder, "stalls.json"), "rb") as file:
        return file.read()


class Predict(CliCase):
    @classmethod
    def setUpClass(cls):
        # Analysing a record simulates many changes: once for all tests.
        with tempfile.TemporaryDirectory() as folder:
            cls.result = make(folder)

    def setUp(self):
        super().setUp()
        self.write("stalls.json", self.result)

    def predict(self, *args):
        status, out, err = self.run_it("predict", "stalls.json", *args)
        self.assertEqual((status, err), (0, ""))
        return out

    def read_json(self, *args):
        return json.loads(self.predict(*args, "--json"))

    def refused(self, args, status, message):
        self.expect(["predict", *args], status, "", f"headrace predict: {message}\n")

    def test_now(self):
        self.assertEqual(self.predict(), """\
stalls.json

                                               now
samples/s                                      253
  range                                 241 to 266
compute                                       38 %
copy                                           2 %
preparation                                   24 %
fetch                                         37 %
files in memory                               54 %
cores busy                                    16 %
min(F, P, G) of DS-Analyzer                    276
  G, the device                                674
  P, preparation                               400
  F, fetching                                  276

The cheapest change that ends the waiting (60 % of the time now):
  Headrace's loader and storage 3 times as fast: 640 samples/s
  or 8 workers and storage 3 times as fast: 640 samples/s
""")

    def test_then(self):
        self.assertEqual(self.predict("--storage", "x2", "--cores", "32"), """\
stalls.json: 32 cores, storage x2

                                               now              then *
samples/s                                      253                 332
  range                                 241 to 266          315 to 349
compute                                       38 %                49 %
copy                                           2 %                 3 %
preparation                                   24 %                31 %
fetch                                         37 %                17 %
files in memory                               54 %                54 %
cores busy                                    16 %                11 %
min(F, P, G) of DS-Analyzer                    276                 400
  G, the device                                674                 674
  P, preparation                               400                 400
  F, fetching                                  276                 552

* then: 32 cores, where the machine has 16
The cheapest change that ends the waiting (60 % of the time now):
  Headrace's loader and storage 3 times as fast: 640 samples/s
  or 8 workers and storage 3 times as fast: 640 samples/s
* beyond the measured range
""")

    def test_series(self):
        self.assertEqual(self.predict("--cache-share", "0..1"), """\
stalls.json

cache-share samples/s                     compute  copy  prep.  fetch  min(FPG)
now               253  ###########             38     2     24     37       276
0 %               200  #########               30     2     19     50       200
10 %              220  ##########              33     2     21     45       222
20 %              238  ###########             35     2     22     41       250
30 %              257  ############            38     2     24     36       285
40 %              276  ############            41     2     26     31       332
50 %              295  #############           44     2     28     26       398
60 %              316  ##############          47     2     30     21       400
70 %              338  ###############         50     3     32     15       400
80 %              358  ################        53     3     34     11       400
90 %              379  #################       56     3     36      5       400
100 %             400  ##################      59     3     38      0       400
compute, copy, preparation, fetch: % of the time

The cheapest change that ends the waiting (60 % of the time now):
  Headrace's loader and storage 3 times as fast: 640 samples/s
  or 8 workers and storage 3 times as fast: 640 samples/s
""")

    def test_beyond_the_machine(self):
        self.assertEqual(self.predict("--cores", "8,16,32", "--loader=headrace"), """\
stalls.json: Headrace's loader

cores       samples/s                     compute  copy  prep.  fetch  min(FPG)
now               253  ###########             38     2     24     37       276
8                 432  ##################      64     3      0     33       430
16                432  ##################      64     3      0     33       430
32                432* ##################      64     3      0     33       430
compute, copy, preparation, fetch: % of the time

- 16: a cache of the memory that is free, encoded
* 32: 32 cores, where the machine has 16; a cache of the memory that is free, encoded
The cheapest change that ends the waiting (60 % of the time now):
  Headrace's loader and storage 3 times as fast: 640 samples/s
  or 8 workers and storage 3 times as fast: 640 samples/s
* beyond the measured range
""")

    def test_measured_phases_come_out(self):
        for share, rate in ((0, 200), (1, 400)):
            one = self.read_json("--cache-share", str(share))["predictions"][0]
            self.assertAlmostEqual(one["rate"], rate, delta=0.005 * rate)
            self.assertEqual(one["reference"]["fetch"] is None, share == 1)
        steps = self.read_json("--gpu-speedup", "1,2,0.5", "--cache-share", "1", "--workers", "8")
        for one, rate in zip(steps["predictions"], (640, 800, 64 / 0.195)):
            self.assertAlmostEqual(one["rate"], rate, delta=0.01 * rate)

    def test_json(self):
        found = self.read_json("--storage", "40MB/s,1GB", "--page-cache", "--loader", "headrace",
                               "--form", "encoded", "--gpus", "2")
        self.assertEqual(sorted(found), ["file", "layout", "now", "predictions", "stall", "suggestions"])
        self.assertEqual((found["layout"], found["file"], found["stall"]), (1, "stalls.json", 0.02))
        self.assertEqual(found["now"]["change"], {})
        self.assertEqual([one["change"] for one in found["predictions"]], [
            {"page_cache": True, "storage_bytes_per_s": speed, "gpus": 2, "loader": "headrace",
             "form": "encoded"} for speed in (40e6, 1e9)])
        for one in [found["now"], *found["predictions"], *found["suggestions"]]:
            self.assertAlmostEqual(sum(one["share"].values()), 1, places=5)
            self.assertLessEqual(one["low"], one["rate"])
            self.assertGreaterEqual(one["high"], one["rate"])
            self.assertLessEqual(one["rate"], one["reference"]["rate"] * 1.01)
        self.assertTrue(found["predictions"][0]["extrapolated"])
        self.assertEqual(found["suggestions"][0]["change"],
                         {"page_cache": True, "storage_factor": 3, "loader": "headrace"})
        sizes = self.read_json("--cache", "25GB..100GB")["predictions"]
        self.assertEqual(len(sizes), 11)
        self.assertEqual([sizes[i]["change"]["cache_bytes"] for i in (0, 5, 10)], [25e9, 50e9, 100e9])
        self.assertEqual(sizes, sorted(sizes, key=lambda one: one["rate"]))
        everything = self.read_json("--cache", "100GB", "--stall", "0.7")
        self.assertEqual(everything["suggestions"], [])

    def test_ranges(self):
        def cores(text):
            return [one["change"]["cores"] for one in self.read_json("--cores", text)["predictions"]]
        self.assertEqual(cores("1..4"), [1, 2, 3, 4])
        self.assertEqual(cores("4..2"), [4, 3, 2])
        self.assertEqual(cores("8..8"), [8])
        self.assertEqual(cores("1..64"), [1, 2, 3, 5, 8, 12, 18, 28, 42, 64])

    def test_usage(self):
        number = "it must be a number from 1 to 65536, a list (1,2,4) or a range (1..16)"
        share = "it must be a share from 0 to 1 (or 50%), a list (0.25,0.5) or a range (0..1)"
        size = "it must be a size with a unit (64GiB, 500GB), a list, or a range (16GiB..256GiB)"
        speed = "it must be a speed (2GB/s, 25Gbit/s) or a factor (x2), a list, or a range (100MB/s..2GB/s)"
        factor = "it must be a factor (2, 0.5, x4), a list (1,2,4) or a range (1..4)"
        for option, words, problem in (
                ("cores", ("0", "-1", "1.5", "x2", "", "1,", ",1", "1..", "1..2..3", "1..4,6", "nan",
                           "1e99", "70000", "2 ", " 2", ",".join(["1"] * 40)), number),
                ("cache-share", ("1.1", "-0.1", "120%", "inf", "half", "50 %"), share),
                ("cache", ("64", "64Gi", "GiB", "64XB", "0GB", "1e30GB"), size),
                ("storage", ("2", "x", "x0", "2GB/h", "x1..2GB", "2GBs"), speed),
                ("gpu-speedup", ("0", "fast", "-2"), factor)):
            for word in words:
                self.refused(["stalls.json", f"--{option}={word}"], 2, f"--{option} {word}: {problem}")
        self.refused(["stalls.json", "--cores", "1,2", "--workers", "1,2"], 2,
                     "--cores and --workers both have several values: only one option may")
        self.refused(["stalls.json", "--form", "planes"], 2,
                     "--form is for Headrace's loader: give --loader headrace, too")
        self.refused(["stalls.json", "--stall", "2"], 2, "--stall 2: it must be a share from 0 to 1")
        self.refused([], 2, "an argument is missing; usage: headrace predict RESULT [changes]")
        self.refused(["stalls.json", "--core", "2"], 2,
                     "unknown option --core; did you mean --cores; see headrace predict --help")
        self.refused(["stalls.json", "--cache", "1GB", "--cache-share", "0.5"], 2,
                     "a cache is given by its share or by its bytes, not by both")

    def test_cannot(self):
        self.refused(["stalls.json", "--loader", "headrace", "--form", "planes"], 3,
                     "what Headrace's loader costs on these files was not measured as planes")
        self.refused(["none.json"], 3, "none.json could not be read: No such file or directory")
        self.write("bad.json", b"{}")
        status, out, err = self.run_it("predict", "bad.json")
        self.assertEqual((status, out), (3, ""))
        self.assertTrue(err.startswith("headrace predict: bad.json"), err)

    def test_what_is_not_known(self):
        """No figure if an input is unknown, was not measured, or is contradicted."""
        wide = record()["segments"]
        for one in wide:  # steps of 100 ms, of which one took a second
            if one["phase"] in ("device", "host") and one["round"] == 2:
                one["elapsed_s"] *= 10
        make(self.root, segments=wide)
        status, out, err = self.run_it("predict", "stalls.json", "--cores", "8")
        self.assertEqual((status, out), (3, ""))
        self.assertRegex(err, r"headrace predict: not known: how long a step takes was measured to "
                              r"no better than \+-\d+ %: measure for longer \(--time\), or on a "
                              r"quieter machine\n")
        text = self.run_it("stalls", "report", "stalls.json")[1]
        self.assertIn("not known yet", text)
        self.assertNotIn("would remove", text)
        self.assertIn("predictions", text)

    def test_without_files(self):
        """Every question about a loader with unknown files has an answer or a reason."""
        segments = [one for one in record()["segments"] if one["phase"] != "cold"]
        make(self.root, segments=segments, storage=None, headrace={"reason": "it is a generator"},
             dataset={"name": "a stream", "samples": None, "bytes": None})
        self.assertIn("storage was not measured: all files are taken to be in memory",
                      self.predict())
        self.assertEqual(self.read_json()["now"]["measured"], True)
        self.assertAlmostEqual(self.read_json("--workers", "8")["predictions"][0]["rate"], 640, delta=8)
        self.refused(["stalls.json", "--storage", "x2", "--cache-share", "0.5"], 3,
                     "not known: how fast storage is was not measured: measure again where the files "
                     "can be dropped from memory (not tmpfs), with --data DIR where the loader does "
                     "not name its files")
        self.refused(["stalls.json", "--loader", "headrace"], 3,
                     "Headrace's loader cannot take the place of this one: it is a generator")
        make(self.root, segments=segments, storage=None, drains=[], preparation=[])
        self.refused(["stalls.json", "--cores", "8"], 3,
                     "not known: how fast the loader prepares was not measured (P), because it was "
                     "not run by itself; what other cores, workers or devices would change depends "
                     "on it")

    def test_a_bucket(self):
        """Samples at URLs: no memory keeps them but a cache of the loader's, the link is what a
        faster storage means, and answers are as late as before."""
        rates = {depth: min(depth / 0.045, 200) for depth in (1, 4, 16, 64, 256)}
        members = {
            "loader": {"kind": "headrace", "class": "headrace.torch.DataLoader", "workers": 4,
                       "batches_ahead": 8, "batch_size": 64, "cache_bytes": 0},
            "dataset": {"name": "s3://birds/train", "samples": 200000, "bytes": 20e9,
                        "sizes": [100000] * 10, "filesystem": "s3"},
            "storage": {"depths": [{"depth": depth, "bytes_per_s": rate * 1e5, "reads_per_s": rate,
                                    "parts": [rate * 1e5] * 4} for depth, rate in rates.items()]},
            "headrace": {"reason": "it is Headrace's"}, "preparation": []}
        make(self.root, **members)
        text = " ".join(self.run_it("stalls", "report", "stalls.json")[1].split())
        self.assertTrue(text.startswith(
            "Training waits 70 % of the time: 50 % for the network, 19 % for preparing samples on the "
            "CPU, 1 % for the copy to the GPU. A cache of 13 GiB that never evicts and 7 workers, or "
            "7 workers and a network 4 times as fast would remove the wait. That holds for every "
            "epoch, because the loader has no cache; with the dataset's 20 GB in one, training waits "
            "41 % of the time: "), text[:600])
        for words in "waiting for the network", "the store alone, as this loader asks (F)", "The store":
            self.assertIn(words, text)
        self.assertNotIn(", not verified ", text.replace("Not measured, or not verified", ""))
        self.assertTrue(self.read_json()["now"]["measured"])
        for factor, rate in ("x0.5", 100), ("x2", 400), ("x8", 400):
            one = self.read_json("--storage", factor)["predictions"][0]
            self.assertAlmostEqual(one["rate"], rate, delta=0.01 * rate)
        self.assertIn("only the link is 2 times as fast: the store answers as late as before",
                      self.predict("--storage", "x2"))
        cached = self.read_json("--cache", "10GB,20GB")["predictions"]
        self.assertAlmostEqual(cached[1]["rate"], 400, delta=4)
        self.assertAlmostEqual(cached[0]["share"]["fetch"], 0, delta=0.02)
        # a store whose answers are late, behind a link that has room: a wider one changes nothing
        late = [{"depth": depth, "bytes_per_s": depth * 0.75e5, "reads_per_s": depth * 0.75,
                 "parts": [depth * 0.75e5] * 4} for depth in rates]
        make(self.root, **{**members, "storage": {"depths": late}})
        one = self.read_json("--storage", "x4")["predictions"][0]
        self.assertLess(one["rate"], 230)

    def test_a_bucket_and_a_cache(self):
        """The loader's cache holds all: the usual epoch is one from it."""
        make(self.root, dataset={"name": "s3://birds/train", "samples": 200000, "bytes": 20e9,
                                 "sizes": [100000] * 10, "filesystem": "s3"},
             loader={"kind": "headrace", "class": "headrace.torch.DataLoader", "workers": 4,
                     "batches_ahead": 8, "batch_size": 64, "cache_bytes": 30e9})
        text = " ".join(self.run_it("stalls", "report", "stalls.json")[1].split())
        self.assertTrue(text.startswith("Training waits 41 % of the time: 38 % for preparing"), text)
        self.assertIn("That holds once the dataset's 20 GB are in the loader's cache; the first "
                      "epoch, read from the network, waits 70 % of the time: 50 % for the network",
                      text)

    def test_a_cache_of_learned_files(self):
        """Files that the dataset does not name: len() and the measured reads suffice."""
        segments = record()["segments"]
        for one in segments:
            one["expected_samples"] = one["samples"]
        make(self.root, segments=segments, dataset={"name": "own", "samples": 1000000, "bytes": None})
        half = self.read_json("--cache", "50GB")["predictions"][0]
        self.assertAlmostEqual(half["cached"], 0.5, delta=0.01)

    def test_folder(self):
        os.mkdir(os.path.join(self.root, "result"))
        os.rename(os.path.join(self.root, "stalls.json"), os.path.join(self.root, "result/stalls.json"))
        status, out, err = self.run_it("predict", "result", "--cores", "2")
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(out.startswith("result: 2 cores\n"))

    def test_help(self):
        status, out, err = self.run_it("predict", "--help")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("headrace predict headrace-stalls --cache-share 0..1\n", out)
        self.assertTrue(all(len(line) <= 80 for line in out.splitlines()))


if __name__ == "__main__":
    unittest.main()
