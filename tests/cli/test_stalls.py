#!/usr/bin/env python3
"""headrace stalls: the Python that it finds for a command, and the message if there is none (a
stand-in for the package reports how it was started); report and merge, on records made by hand."""
import json
import os
import sys
import unittest

from harness import CliCase
from records import record

MAIN = b"import sys\nprint(sys.executable)\nprint(sys.argv[1:])\nsys.exit(9)\n"


class Stalls(CliCase):
    def setUp(self):
        super().setUp()
        for name in ("", "stalls/"):
            self.write(f"site/headrace/{name}__init__.py")
        self.write("site/headrace/stalls/launch.py")
        self.write("site/headrace/stalls/__main__.py", MAIN)
        self.env["PYTHONPATH"] = os.path.join(self.root, "site")
        self.env.pop("HEADRACE_PYTHON", None)
        self.bin = os.path.join(self.root, "bin")
        os.mkdir(self.bin)

    def program(self, name, text):
        path = os.fsdecode(self.write(name, text.encode()))
        os.chmod(path, 0o755)
        return path

    def python(self, name="python3"):
        """Makes a Python that can be recognised by its path, and has the package in any
        environment."""
        site = self.env["PYTHONPATH"]
        return self.program(
            f"{name}", f"#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} \"$@\"\n"
        )

    def test_the_command_line_is_passed_on(self):
        words = ["--data", "d", "--time=5", "--json", "--", sys.executable, "train.py", "--", "--lr"]
        self.expect(["stalls", *words], 9, f"{sys.executable}\n{words}\n")
        # without --, the first word that is not an option begins the command
        words = ["--batches", "3", sys.executable, "train.py", "--batches", "x"]
        begun = [*words[:2], "--", *words[2:]]
        self.expect(["stalls", *words], 9, f"{sys.executable}\n{begun}\n")

    def found(self, *command):
        status, out, err = self.run_it("stalls", "--", *command)
        self.assertEqual((status, err), (9, ""))
        return out.splitlines()[0]

    def test_which_python(self):
        """Stand-ins for Python are scripts, so the real one's path shows nothing; but only one of
        them can import the package."""
        mine = self.python("venv/bin/python3.11")
        self.env["PYTHONPATH"] = ""
        self.assertEqual(self.found(mine, "train.py"), sys.executable)
        self.assertEqual(self.found("env", "A=1", mine, "train.py"), sys.executable)
        for line in (f"#!{mine}", f"#! {mine} -u", f"#!/bin/sh\n'''exec' \"{mine}\" \"$0\" \"$@\""):
            script = self.program("torchrun", line + "\n' '''\n")
            self.assertEqual(self.found(script, "train.py"), sys.executable)
        self.env["PATH"] = f"{os.path.dirname(mine)}:{self.env['PATH']}"
        script = self.program("torchrun", "#!/usr/bin/env python3.11\n")
        self.assertEqual(self.found(script), sys.executable)
        os.rename(mine, os.path.join(os.path.dirname(mine), "python3"))
        self.assertEqual(self.found("bash", "run.sh"), sys.executable)

    def test_the_working_directory_is_no_place_for_modules(self):
        for name in ("argparse.py", "headrace.py"):
            self.write(name, b"raise SystemExit('the wrong module')\n")
        self.assertEqual(self.found(sys.executable, "train.py"), sys.executable)

    def test_no_python(self):
        self.env["PATH"] = self.bin
        begin = "headrace stalls: no Python was found that has the package headrace"
        end = (
            "Install the package (Python 3.11 or newer) where the script's torch is, or name a\n"
            "Python that has it: HEADRACE_PYTHON=/path/to/python headrace stalls ...\n"
        )
        self.expect(["stalls", "--", "train"], 3, "", f"{begin}\n{end}")
        one = self.program("bin/python3", "#!/bin/sh\necho first >&2\necho 'it is\x1b[1m old' >&2\nexit 1\n")
        reason = "it is?[1m old"
        self.expect(["stalls", "--", "train"], 3, "", f"{begin}; tried:\n  {one}: {reason}\n{end}")
        self.env["PYTHONPATH"] = ""
        # Without site-packages, because this Python may have the package.
        bare = self.program("bare/python3", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        self.env["HEADRACE_PYTHON"] = bare
        status, out, err = self.run_it("stalls", "--", one, "train.py")
        self.assertEqual((status, out), (3, ""))
        self.assertRegex(err, rf"tried:\n  {bare}: ModuleNotFoundError: No module named ")
        self.assertNotIn(one, err)
        self.env["HEADRACE_PYTHON"] = "/nonexistent/python"
        reason = "it cannot be started: No such file or directory"
        self.expect(["stalls", "--", "train"], 3, "",
                    f"{begin}; tried:\n  /nonexistent/python: {reason}\n{end}")

    def test_usage(self):
        missing = "headrace stalls: a command to measure is missing: headrace stalls -- python train.py\n"
        self.expect(["stalls"], 2, "", missing)
        self.expect(["stalls", "--json", "--"], 2, "", missing)
        self.expect(["stalls", "--bathces", "3", "--", "x"], 2, "",
                    "headrace stalls: unknown option --bathces; did you mean --batches; "
                    "see headrace stalls --help\n")
        self.expect(["stalls", "--batches", "0", "--", "x"], 2, "",
                    "headrace stalls: --batches 0: it must be a number from 1 to 1073741824\n")
        self.expect(["stalls", "--time", "0", "--", "x"], 2, "",
                    "headrace stalls: --time 0: it must be a number, 1 or more\n")
        status, out, _ = self.run_it("stalls", "--help")
        self.assertEqual(status, 0)
        self.assertIn("headrace stalls --then-run -- torchrun --nproc-per-node 8 train.py", out)
        self.assertLessEqual(max(map(len, out.splitlines())), 80)

    def test_both_sides_know_the_same_options(self):
        self.same_options("stalls")


class Results(CliCase):
    def setUp(self):
        super().setUp()
        for rank in range(2):
            self.write(f"host{rank}/records/rank-{rank}.json", json.dumps(record(rank)).encode())
        self.files = ["report.html", "stalls.json", "trace.json"]

    def merged(self, *parts):
        status, out, err = self.run_it("stalls", "merge", *parts)
        self.assertEqual((status, err), (0, ""))
        return out

    def read(self, path):
        with open(os.path.join(self.root, path)) as file:
            return file.read()

    def test_records_of_hosts_are_one_result(self):
        out = self.merged("all", "host0", "host1")
        self.assertIn("waits 33 % of the time", out)
        self.assertIn("on host1", out)
        self.assertEqual(sorted(os.listdir(os.path.join(self.root, "all"))), self.files)
        status, text, _ = self.run_it("stalls", "merge", "all", "host0", "host1", "--json")
        self.assertEqual((status, text), (0, self.read("all/stalls.json")))
        self.assertEqual(json.loads(text)["headrace_stalls"], 1)

    def test_results_of_hosts_are_one_result(self):
        for rank in range(2):
            self.merged(f"one{rank}", f"host{rank}")
        out = self.merged("all", "one0", "one1/stalls.json")
        self.assertEqual(out.splitlines()[0], self.merged("again", "host0", "host1").splitlines()[0])

    def test_parts_that_do_not_fit(self):
        self.write("other/records/rank-1.json", json.dumps(record(1, "another")).encode())
        for parts, text in ((("host0", "other"), "run"), (("host0", "host0"), "rank 0")):
            status, out, err = self.run_it("stalls", "merge", "all", *parts)
            self.assertEqual((status, out), (3, ""))
            self.assertTrue(err.startswith("headrace stalls merge: "), err)
            self.assertIn(text, err)
        self.assertFalse(os.path.exists(os.path.join(self.root, "all")))
        status, _, err = self.run_it("stalls", "merge", "all", "host0", "nowhere")
        self.assertEqual(status, 3)
        self.assertIn("nowhere", err)

    def test_a_folder_of_something_else_is_left_alone(self):
        self.write("mine/photo.jpg")
        self.expect(["stalls", "merge", "mine", "host0"], 3, "",
                    "headrace stalls merge: the folder mine holds something other than a result: "
                    "name another one\n")
        self.expect(["stalls", "merge", "mine/photo.jpg", "host0"], 3, "",
                    "headrace stalls merge: cannot write to the folder mine/photo.jpg: "
                    "Not a directory\n")

    def test_report(self):
        out = self.merged("all", "host0", "host1")
        self.expect(["stalls", "report", "all"], 0, out)
        self.expect(["stalls", "report", "all/stalls.json", "--text"], 0, out)
        self.expect(["stalls", "report", "all", "--json"], 0, self.read("all/stalls.json"))
        self.expect(["stalls", "report", "all", "--page", "p.html", "--trace", "t.json"], 0)
        self.assertEqual(self.read("p.html"), self.read("all/report.html"))
        self.assertEqual(json.loads(self.read("t.json")), json.loads(self.read("all/trace.json")))
        self.env["COLUMNS"] = "60"
        status, narrow, _ = self.run_it("stalls", "report", "all")
        self.assertLessEqual(max(map(len, narrow.splitlines())), 60)

    def test_what_is_no_result(self):
        self.write("bad.json", b'{"headrace_stalls": 1')
        for path in ("bad.json", "nowhere", "host0", "host0/records/rank-0.json"):
            status, out, err = self.run_it("stalls", "report", path)
            self.assertEqual((status, out), (3, ""))
            self.assertTrue(err.startswith("headrace stalls report: "), err)
            self.assertIn(path, err)
        status, _, err = self.run_it("stalls", "report")
        self.assertEqual(status, 2)


if __name__ == "__main__":
    unittest.main()
