#!/usr/bin/env python3
"""headrace plan: plans for a network whose best division is known: eight equal layers of 10 ms
forward and 20 ms backward, 100 MB of weights and 10 MB held each."""
import json
import unittest

from harness import CliCase

LAYER = {"name": "block", "repeat": 8, "forward_s": [0.01], "backward_s": [0.02],
         "weight_bytes": 100e6, "held_bytes": [10e6], "output_bytes": [1e6]}
PROFILE = {"headrace_pipeline_profile": 1, "name": "eight layers", "microbatches": [1], "layers": [LAYER]}


class Plan(CliCase):
    def setUp(self):
        super().setUp()
        self.write("p.json", json.dumps(PROFILE).encode())

    def plan(self, *args, status=0):
        found, out, err = self.run_it("plan", "p.json", *args)
        self.assertEqual((found, err), (status, ""))
        return out

    def plans(self, *args):
        return json.loads(self.plan(*args, "--json"))

    def test_text(self):
        out = self.plan("--gpus", "4", "--batch", "8", "--replicas", "1", "--memory", "40GiB", "--link", "25Gbit/s")
        self.assertTrue(out.startswith("Fastest: 2bw with 4 stages, microbatches of 1: "), out)
        self.assertIn("\nplans ", out)
        self.assertIn("batch 2, microbatches 9 to 16", out)
        self.assertIn("bubble", out)
        self.assertIn("gpipe with 4 stages, microbatches of 1; stage 1 to 4: 916 MiB ", " ".join(out.split()))
        self.assertTrue(max(map(len, out.splitlines())) <= 80)

    def test_times(self):
        given = ["--gpus", "4", "--batch", "8", "--stages", "4", "--recompute", "no"]
        for schedule, passes in {"gpipe": 8 + 3, "1f1b": 8 + 3, "2bw": 8}.items():
            plan = self.plans(*given, "--schedule", schedule)["plans"][0]
            self.assertAlmostEqual(plan["step_s"], 0.06 * passes)
            self.assertEqual(plan["cuts"], [0, 2, 4, 6, 8])

    def test_links(self):
        given = ["--gpus", "2", "--batch", "8", "--stages", "2", "--recompute", "no", "--schedule", "2bw"]
        # 1 MB of each microbatch over 1 Gbit/s: 8 ms, beside 120 ms of passes.
        for link, took in {("--link", "1Gbit/s"): 0.128, ("--link", "125MB/s"): 0.128, (): 0.12}.items():
            self.assertAlmostEqual(self.plans(*given, *link)["plans"][0]["step_s"], 8 * took)
        slow = ["--link", "1GB/s", "--network", "125MB/s", "--server-gpus", "1"]
        self.assertAlmostEqual(self.plans(*given, *slow)["plans"][0]["step_s"], 8 * 0.128)

    def test_optimizer(self):
        given = ["--gpus", "1", "--batch", "1", "--recompute", "no"]
        for ratio, held in {"0": 2, "1": 3, "2": 4}.items():
            plan = self.plans(*given, "--optimizer", ratio)["plans"][0]
            self.assertEqual(plan["memory_bytes"], 800e6 * held + 80e6)

    def test_nothing_fits(self):
        out = self.plan("--gpus", "2", "--batch", "4", "--memory", "100MB", status=1)
        self.assertTrue(out.startswith("Nothing fits: none of "), out)
        self.assertIn("of 95.4 MiB", out)

    def test_files(self):
        given = ["--gpus", "4", "--batch", "8", "--stages", "4", "--schedule", "2bw"]
        out = self.plan(*given, "--page", "a.html", "--trace", "a.json")
        self.assertEqual(out, "")
        with open(f"{self.root}/a.html") as page, open(f"{self.root}/a.json") as trace:
            self.assertIn("eight layers", page.read())
            events = json.load(trace)["traceEvents"]
        names = {event["name"] for event in events}
        threads = {event["args"].get("name") for event in events}
        self.assertTrue({"forward 1", "backward 48", "update 1"} <= names)
        self.assertIn("GPU of stage 4", threads)

    def test_refusals(self):
        cases = [
            (["plan", "p.json"], 2, "give --gpus and --batch: how many GPUs there are, and the samples of a batch"),
            (["plan", "p.json", "--gpus", "2", "--batch", "1", "--memory", "40"], 2,
             "--memory 40: it must be a size (40GiB)"),
            (["plan", "p.json", "--gpus", "2", "--batch", "1", "--link", "x2"], 2,
             "--link x2: it must be a speed (300GB/s, 25Gbit/s)"),
            (["plan", "p.json", "--gpus", "2", "--batch", "1", "--network", "1GB/s"], 2,
             "--network is the link between servers: give --server-gpus, too"),
            (["plan", "none.json", "--gpus", "2", "--batch", "1"], 3,
             "cannot read none.json: No such file or directory"),
            (["plan", "p.json", "--gpus", "2", "--batch", "1", "--microbatch", "3"], 3,
             "the profile has no times for microbatches of 3, only for 1"),
        ]  # fmt: skip
        for args, status, message in cases:
            self.expect(args, status, "", f"headrace plan: {message}\n")
        zero = dict(PROFILE, layers=[dict(LAYER, backward_s=[0])])
        self.write("zero.json", json.dumps(zero).encode())
        self.expect(["plan", "zero.json", "--gpus", "2", "--batch", "1"], 3, "",
                    "headrace plan: zero.json: layers[0] (block).backward_s is 0 for microbatches of 1: it was "
                    "not measured; measure it, or join the layer with the one beside it\n")


if __name__ == "__main__":
    unittest.main()
