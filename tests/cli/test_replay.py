#!/usr/bin/env python3
"""headrace replay: traces and what-ifs on the command line, on a trace written by hand, and the Python
that it finds for a recording (a stand-in for the package reports that)."""
import gzip
import json
import os
import re
import sys
import unittest

from harness import CliCase

MAIN = b"import sys\nprint(sys.argv[1:])\nsys.exit(9)\n"


def event(category, name, thread, begin, length, **arguments):
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": begin, "dur": length,
            "args": arguments}


# The CPU launches a kernel of 100 us and waits for it.
TRACE = [
    event("user_annotation", "ProfilerStep#0", 1, 0, 200),
    event("cuda_runtime", "cudaLaunchKernel", 1, 10, 10, correlation=1),
    event("kernel", "gemm", 7, 16, 100, correlation=1, stream=7, device=0),
    event("cuda_runtime", "cudaDeviceSynchronize", 1, 30, 88, correlation=2),
]


class Replay(CliCase):
    def setUp(self):
        super().setUp()
        self.trace = self.write("trace.json", json.dumps({"traceEvents": TRACE}).encode())

    def json(self, *words):
        status, out, err = self.run_it("replay", self.trace, *words, "--json")
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def test_what_ifs_in_a_row(self):
        found = self.json("gpu", "x2", "kernels:gemm x0.5")
        self.assertEqual([one["what"] for one in found["what_ifs"]], ["gpu x2", "kernels:gemm x0.5"])
        self.assertEqual([round(one["iteration_s"] * 1e6) for one in found["what_ifs"]], [150, 125])
        self.assertEqual(found["identity"]["error"], 0)
        self.assertEqual(self.json("gpu x2")["what_ifs"], found["what_ifs"][:1])

    def test_arguments_and_files_named_like_what_ifs(self):
        self.write("gpu")
        os.chdir(self.root)
        self.assertEqual([one["what"] for one in self.json("gpu", "x2")["what_ifs"]], ["gpu x2"])
        status, out, err = self.run_it("replay", self.trace, "ddp", "ranks=2", "link=1GB/s", "bucket=1MB", "amp")
        self.assertEqual((status, out), (3, ""))
        self.assertIn("no backward pass that makes gradients", err)
        status, out, err = self.run_it("replay", self.trace, "ddp", "ranks=2", "amp")
        self.assertIn("link= is missing: it takes a speed", err)

    def test_text_ranks_what_applies(self):
        status, out, err = self.run_it("replay", self.trace)
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(out.startswith("Replay without a change: 200 us for 200 us recorded"))
        tried, untried = out.split("\nNot tried:\n")
        self.assertIn("gpu x2", tried)
        self.assertNotIn("data-ready", tried)
        self.assertIn("data-ready: the trace has no wait for a torch.utils.data.DataLoader.", untried)
        self.assertEqual({one["what"] for one in self.json()["not_tried"]} & {"ddp", "ops:REGEX x0.5", "gpu x2"},
                         {"ddp", "ops:REGEX x0.5"})

    def test_without_steps(self):
        trace = self.write("plain.json", json.dumps({"traceEvents": TRACE[1:]}).encode())
        status, out, err = self.run_it("replay", trace)
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(out.startswith("The trace has no steps of the profiler (ProfilerStep#)"), out)

    def test_loss_tolerance(self):
        events = [*TRACE, event("kernel", "ncclDevKernel_AllReduce_Sum_f32", 8, 116, 50, correlation=1, stream=8,
                                device=0, dtype="Float", **{"In msg nelems": 100000, "Group size": 2})]
        trace = self.write("nccl.json", json.dumps({"traceEvents": events}).encode())
        status, out, err = self.run_it("replay", trace, "loss-tolerance", "p=0.5", "latency=1us", "gpu", "x2", "--json")
        self.assertEqual((status, err), (0, ""))
        found = json.loads(out)["what_ifs"]
        self.assertEqual([one["what"] for one in found], ["loss-tolerance p=0.5 latency=1us", "gpu x2"])
        self.assertIn("time only, not the accuracy", found[0]["assumes"])
        status, out, err = self.run_it("replay", self.trace, "loss-tolerance", "p=0.5")
        self.assertEqual((status, out), (3, ""))
        self.assertIn("has no communication", err)

    def test_predicted_trace(self):
        to = os.path.join(self.root, "after.json")
        self.json("gpu x2", "--trace", to)
        with open(to, encoding="utf-8") as file:
            slices = [one for one in json.load(file)["traceEvents"] if one["ph"] == "X"]
        gemm = next(one for one in slices if one["name"] == "gemm")
        self.assertEqual((gemm["ts"], gemm["dur"]), (16, 50))

    def test_advice_names_what_is_left(self):
        """After a kernel of half the length, the rest of it is still the bottleneck; after none, the CPU."""
        half, none = self.json("kernels:gemm x0.5", "kernels:gemm x0")["what_ifs"]
        self.assertEqual((half["bottleneck"]["kind"], half["bottleneck"]["name"]), ("untraced", "ProfilerStep#0"))
        self.assertEqual(none["bottleneck"]["kind"], "untraced")
        before = self.json("kernels:gemm x0.9")
        self.assertEqual((before["bottleneck"]["kind"], before["bottleneck"]["name"]), ("kernels", "gemm"))
        self.assertEqual(before["bottleneck"]["share"], 0.5)
        first = before["critical_path_names"][0]
        self.assertEqual((first["name"], first["kind"], first["share"], first["count"]), ("gemm", "kernels", 0.5, 1))

    def test_page(self):
        to = os.path.join(self.root, "replay.html")
        self.expect(["replay", self.trace, "gpu", "x2", "--page", to], 0, "")
        with open(to, encoding="utf-8") as file:
            page = file.read()
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
        before, after = data["pictures"]
        self.assertEqual(data["length"], 200_000)
        for picture, end in ((before, 116_000), (after, 66_000)):
            stream = next(lane for lane in picture["lanes"] if lane["name"] == "device 0 stream 7")
            self.assertEqual([run[:2] for run in stream["runs"]], [[16_000, end]])
            self.assertEqual(stream["critical"], [[16_000, end]])
        self.assertIn("gpu x2: 150 us", page.replace("With ", ""))
        self.assertIn("All kernels take 1/F", page)

    def test_page_of_a_large_trace_is_small(self):
        """Kernels too short to see are joined, and threads that matter less are left out."""
        events = [event("user_annotation", "ProfilerStep#0", 1, 0, 40_000)]
        for i in range(10_000):
            events += [event("cuda_runtime", "cudaLaunchKernel", 1, 4 * i, 1, correlation=i),
                       event("kernel", f"gemm{i % 7}", 7, 4 * i + 2, 1, correlation=i, stream=7, device=0)]  # fmt: skip
        events += [event("cpu_op", "aten::mm", 100 + i, 10, 20) for i in range(20)]
        trace = self.write("large.json", json.dumps({"traceEvents": events}).encode())
        status, page, err = self.run_it("replay", trace, "--page", "-", "--limit", "100")
        self.assertEqual((status, err), (0, ""))
        self.assertLess(len(page), 400_000)
        lanes = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))["pictures"][0]["lanes"]
        stream = next(lane["runs"] for lane in lanes if lane["name"] == "device 0 stream 7")
        self.assertLessEqual(len(stream), 2_002)
        self.assertEqual(sum(run[4] for run in stream), 10_000)
        self.assertEqual(sum(run[2] for run in stream), 10_000_000)
        self.assertEqual(len(lanes), 12)
        self.assertIn("; left out, because they matter less: 10 of the threads and streams", page)

    def test_refused(self):
        status, out, err = self.run_it("replay", self.trace, "warp")
        self.assertEqual((status, out), (3, ""))
        self.assertIn("'warp' is no what-if; there are: data-ready, ", err)
        status, out, err = self.run_it("replay", "none.json", "amp")
        self.assertEqual((status, out), (3, ""))
        self.assertIn("none.json", err)
        self.assertEqual(self.run_it("replay")[0], 2)

    def test_damaged_files(self):
        whole = gzip.compress(json.dumps({"traceEvents": TRACE * 500}).encode())
        for content, words in ((whole[: len(whole) // 2], "the gzipped file is cut off"),
                               (b"", "is empty: the run ended"), (b"\x7fELF\0", "no value begins here")):  # fmt: skip
            damaged = self.write("damaged.json.gz", content)
            status, out, err = self.run_it("replay", damaged)
            self.assertEqual((status, out), (3, ""))
            self.assertIn("damaged.json.gz", err)
            self.assertIn(words, err)

    def test_untrusted(self):
        """One of three launches took 300 us: the graph does not explain it."""
        events = [event("user_annotation", "ProfilerStep#0", 1, 0, 1000)]
        for i, delay in enumerate((6, 6, 300)):
            events += [
                event("cuda_runtime", "cudaLaunchKernel", 1, 100 * i, 5, correlation=2 * i + 1),
                event("kernel", "gemm", 7, 100 * i + delay, 20, correlation=2 * i + 1, stream=7, device=0),
                event("cuda_runtime", "cudaDeviceSynchronize", 1, 100 * i + 10, delay + 12, correlation=2 * i + 2),
            ]
        trace = self.write("late.json", json.dumps({"traceEvents": events}).encode())
        status, out, err = self.run_it("replay", trace, "--json")
        self.assertEqual((status, err), (1, ""))
        found = json.loads(out)
        self.assertEqual((found["what_ifs"], found["identity"]["trusted"]), ([], False))
        status, out, err = self.run_it("replay", trace, "gpu x2")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("nothing is predicted from it", err)
        self.assertEqual(self.run_it("replay", trace, "gpu x2", "--limit", "40")[0], 0)

    def test_record_passes_its_command_line_on(self):
        for name in ("__init__.py", "replay/__init__.py", "replay/launch.py"):
            self.write(f"site/headrace/{name}")
        self.write("site/headrace/replay/__main__.py", MAIN)
        self.env["PYTHONPATH"] = os.path.join(self.root, "site")
        words = ["--skip", "3", "--", sys.executable, "train.py", "--lr"]
        self.expect(["replay", "record", *words], 9, f"{words}\n")
        self.assertEqual(self.run_it("replay", "record")[0], 2)
        self.same_options("replay", "record")


if __name__ == "__main__":
    unittest.main()
