#!/usr/bin/env python3
"""headrace agent: a real agent is started, queried, watched and ended, by signals, by command and
by itself; and the messages when that is impossible."""
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from harness import EXE, CliCase, png

JOB = os.environ["HEADRACE_AGENT_JOB"]
WITH_METRICS = os.environ["HEADRACE_WITH_METRICS"] == "1"


class Agent(CliCase):
    def setUp(self):
        super().setUp()
        self.socket = os.path.join(self.root, "run", "agent.sock")
        self.env["HEADRACE_AGENT"] = self.socket

    def start(self, *args, ready=True, **more):
        p = subprocess.Popen([EXE, "agent", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env,
                             cwd=self.root, **more)
        self.addCleanup(self.end, p)
        if ready:
            line = p.stdout.readline().decode()
            if not line:
                self.fail(p.stderr.read().decode())
            self.assertRegex(line, r"\Aserving at .* with \d+ threads?\n\Z")
            p.line = line
        return p

    def end(self, p):
        if p.poll() is None:
            p.kill()
        p.wait()
        p.stdout.close()
        p.stderr.close()

    def over(self, p):
        """Waits for an agent that must end now; returns (exit status, rest of standard output,
        standard error)."""
        out, err = p.communicate(timeout=600)
        return p.returncode, out.decode(), err.decode()

    def status(self):
        code, out, err = self.run_it("agent", "--status")
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)

    def test_serves_until_it_is_stopped(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            p = self.start("--threads", "2")
            self.assertEqual(p.line, f"serving at {self.socket} with 2 threads\n")
            self.assertEqual(os.stat(self.socket).st_mode & 0o777, 0o600)
            self.assertEqual(os.stat(os.path.dirname(self.socket)).st_mode & 0o777, 0o700)
            p.send_signal(number)
            self.assertEqual(self.over(p), (0, "", ""))
            self.assertFalse(os.path.exists(self.socket))

    def test_stop(self):
        p = self.start("--threads", "1")
        self.assertEqual(p.line, f"serving at {self.socket} with 1 thread\n")
        self.expect(["agent", "--stop"], 0)
        self.assertEqual(self.over(p), (0, "", ""))
        status, out, err = self.run_it("agent", "--stop")
        self.assertEqual((status, out), (3, ""))
        self.assertTrue(err.startswith(f"headrace agent: no agent serves {self.socket}: "), err)

    def test_one_agent_for_a_socket(self):
        self.start()
        status, out, err = self.run_it("agent")
        self.assertEqual((status, out), (3, ""))
        self.assertIn(self.socket, err)
        self.assertEqual(err.count("\n"), 1)
        # beside it, another one
        other = os.path.join(self.root, "run", "other.sock")
        p = self.start("--socket", other)
        self.expect(["agent", "--stop", "--socket", other], 0)
        self.assertEqual(self.over(p)[0], 0)
        self.assertEqual(self.status()["socket"], self.socket)

    def test_killed_one_is_replaced(self):
        p = self.start()
        p.kill()
        p.wait()
        self.assertTrue(os.path.exists(self.socket))
        q = self.start()
        self.expect(["agent", "--stop"], 0)
        self.assertEqual(self.over(q)[0], 0)

    def test_silent_connections_and_a_full_agent(self):
        """A job without a place gets an error; silent connections are closed."""
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        p = self.start("--threads", "1", preexec_fn=limit)
        silent = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(60)]
        for s in silent:
            self.addCleanup(s.close)
            s.connect(self.socket)
        status, out, err = self.run_it("agent", "--status")
        self.assertEqual((status, out), (3, ""))
        self.assertRegex(err, r"\Aheadrace agent: the agent at .* as many open files as it may: .*ulimit -n.*\n\Z")
        limit = time.monotonic() + 600
        while self.run_it("agent", "--status")[0]:
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.1)
        self.assertEqual(self.status()["jobs"], 0)
        self.expect(["agent", "--stop"], 0)
        self.assertEqual(self.over(p)[0], 0)

    def test_idle(self):
        begun = time.monotonic()
        p = self.start("--idle", "0.5")
        self.assertEqual(self.over(p), (0, "", ""))
        self.assertGreater(time.monotonic() - begun, 0.45)
        self.assertFalse(os.path.exists(self.socket))

    def test_listener(self):
        os.mkdir(os.path.dirname(self.socket), 0o700)
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.bind(self.socket)
        os.chmod(self.socket, 0o600)
        s.listen(8)
        del self.env["HEADRACE_AGENT"]
        p = self.start("--listener", str(s.fileno()), "--threads", "1", pass_fds=[s.fileno()])
        s.close()
        self.assertEqual(p.line, f"serving at {self.socket} with 1 thread\n")
        self.expect(["agent", "--stop", "--socket", self.socket], 0)
        self.assertEqual(self.over(p)[0], 0)

    def test_status_and_top(self):
        p = self.start("--threads", "2", "--cache", "16MiB", "--idle", "3600")
        status = self.status()
        self.assertEqual({k: status[k] for k in ("version", "pid", "socket", "threads", "idle_ms", "cache", "jobs",
                                                 "streams", "expelled", "refused")},
                         {"version": 1, "pid": p.pid, "socket": self.socket, "threads": 2, "idle_ms": 3600000,
                          "cache": "16MiB", "jobs": 0, "streams": [], "expelled": 0, "refused": 0})
        self.assertGreater(status["uptime_s"], 0)
        self.assertGreater(status["cpu_s"], 0)
        code, out, err = self.run_it("top", "--once", "--interval", "0.2")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, rf"\Aheadrace agent   process {p.pid}   up 0:\d\d   2 threads   0 jobs\n"
                              r"0 samples/s   CPU 0\.\d\d cores   0\.0 MB/s from storage   0 B shared\n"
                              r"cache 16MiB\n(runs under: .*\n)?\nNo job is attached\.\n\Z")

    def test_metrics(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        if not WITH_METRICS:
            status, out, err = self.run_it("agent", "--metrics", f":{port}")
            self.assertEqual((status, out), (3, ""))
            self.assertIn("built without libmicrohttpd", err)
            return
        p = self.start("--metrics", f":{port}", "--threads", "2")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=600) as answer:
            self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
            text = answer.read().decode()
        self.assertIn("\nheadrace_agent_threads 2\n", text)
        self.assertIn(f'headrace_agent_info{{socket="{self.socket}",cache=""}} 1\n', text)
        with self.assertRaises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=600)
        self.assertEqual(error.exception.code, 404)
        error.exception.close()
        # the port is in use
        status, out, err = self.run_it("agent", "--socket", os.path.join(self.root, "run", "b.sock"), "--metrics",
                                       f":{port}")
        self.assertEqual((status, out), (3, ""))
        self.assertRegex(err, rf'metrics ":{port}": .*another port\n\Z')
        self.expect(["agent", "--stop"], 0)
        self.assertEqual(self.over(p)[0], 0)

    def test_trace(self):
        self.start("--threads", "2")
        path = os.path.join(self.root, "trace.json")
        status, out, err = self.run_it("agent", "--trace", path, "--seconds", "0.2")
        self.assertEqual((status, out, err),
                         (0, f"{path}: a trace of 0.2 s, for ui.perfetto.dev or chrome://tracing\n", ""))
        with open(path, encoding="utf-8") as f:
            trace = json.load(f)
        names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
        self.assertEqual({"worker 0", "worker 1"} & names, {"worker 0", "worker 1"})
        self.assertGreaterEqual(trace["otherData"]["length_us"], 200000)
        # one at a time, and again afterwards
        first, (status, out, err) = self.recorded(path, "2")
        self.assertEqual((status, out), (3, ""))
        self.assertIn("another trace of this agent is being recorded", err)
        self.assertFalse(os.path.exists(path + "2"))
        first.communicate(timeout=600)
        self.assertEqual(first.returncode, 0)
        self.assertEqual(self.run_it("agent", "--trace", path, "--seconds", "0.1")[0], 0)
        status, out, err = self.run_it("agent", "--trace", "/nonexistent/t.json")
        self.assertEqual((status, out, err), (3, "", "headrace agent: /nonexistent/t.json: No such file or directory\n"))

    def recorded(self, path, seconds):
        """Returns a command whose trace is being recorded, and the refusal of another one."""
        while True:
            first = subprocess.Popen([EXE, "agent", "--trace", path, "--seconds", seconds],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
            while first.poll() is None:
                refusal = self.run_it("agent", "--trace", path + "2", "--seconds", "0.01")
                if refusal[0]:
                    return first, refusal
                os.remove(path + "2")
            first.communicate()  # refused because of the other one, or over before it

    def test_signal_ends_it_while_it_is_watched(self):
        p = self.start()
        trace, _ = self.recorded(os.path.join(self.root, "t"), "60")
        p.terminate()
        self.assertEqual(self.over(p), (0, "", ""))
        _, err = trace.communicate(timeout=600)
        self.assertEqual(trace.returncode, 3)
        self.assertIn(b"ended before it answered", err)
        self.assertFalse(os.path.exists(os.path.join(self.root, "t")))

    def job(self, stream, batch, pause_us):
        p = subprocess.Popen([JOB, self.socket, stream, os.path.join(self.root, "set"), str(batch), str(pause_us)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
        self.addCleanup(self.end_job, p)
        if p.stdout.readline() != b"ready\n":
            self.fail(p.stderr.read().decode())
        return p

    def end_job(self, p):
        if p.poll() is None:
            p.kill()
        p.wait()
        for f in (p.stdin, p.stdout, p.stderr):
            f.close()

    def test_jobs(self):
        """Two jobs of a stream and one of another, in the status, in top, in metrics and in a
        trace."""
        for i in range(96):
            self.write(f"set/{'ab'[i % 2]}/{i}.png", png(64, 48))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        metrics = ["--metrics", f":{port}"] if WITH_METRICS else []
        agent = self.start("--threads", "2", *metrics)
        jobs = [self.job("one", 8, 5000), self.job("two", 16, 20000), self.job("two", 4, 5000)]
        pids = [j.pid for j in jobs]
        # between two epochs a job has no cursor: each is looked for until it is there
        self.until(lambda: self.check_top_json(pids))
        self.until(lambda: self.check_top(pids))
        if metrics:
            self.until(lambda: self.check_metrics(port, pids))
        self.check_trace(agent.pid, pids)
        for j in jobs:
            j.stdin.close()
            self.assertEqual(j.wait(600), 0, j.stderr.read())
        self.until(lambda: self.assertEqual((self.status()["jobs"], self.status()["streams"]), (0, [])))
        self.expect(["agent", "--stop"], 0)
        self.assertEqual(self.over(agent), (0, "", ""))

    def until(self, check):
        end = time.monotonic() + 600
        while True:
            try:
                return check()
            except AssertionError:
                if time.monotonic() > end:
                    raise

    def check_top_json(self, pids):
        code, out, err = self.run_it("top", "--once", "--json", "--interval", "0.5")
        self.assertEqual((code, err), (0, ""))
        top = json.loads(out)
        streams = {s["name"]: s for s in top["streams"]}
        self.assertEqual((set(streams), top["jobs"]), ({"one", "two"}, 3))
        self.assertGreater(top["samples_per_s"], 0)
        for name, who in (("one", pids[:1]), ("two", pids[1:])):
            s = streams[name]
            self.assertEqual((s["samples"], s["dataset"]), (96, os.path.join(self.root, "set")))
            self.assertEqual(len([queue for queue in s["queues"] if not queue["alone"]]), 1)
            self.assertEqual(sorted(x["pid"] for queue in s["queues"] for x in queue["subscribers"]), sorted(who))
            for queue in s["queues"]:
                self.assertLessEqual(queue["ready_samples"], queue["window_samples"])
                for x in queue["subscribers"]:
                    self.assertTrue(x["program"].startswith("agent_job "), x)
                    self.assertGreater(x["samples"], 0)
                    self.assertGreater(x["samples_per_s"] or 0, 0)
                    self.assertLessEqual(x["behind_samples"], queue["window_samples"])

    def check_top(self, pids):
        out = self.run_it("top", "--once", "--interval", "0.2")[1]
        self.assertRegex(out, r"\nstream one   \S+   96 samples\n")
        self.assertLessEqual(max(map(len, out.splitlines())), 80)
        for pid in pids:
            self.assertRegex(out, rf"\n +{pid}  agent_job ")

    def check_metrics(self, port, pids):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=600) as answer:
            text = answer.read().decode()
        self.assertRegex(text, r'\nheadrace_queue_prepared_samples_total\{stream="one",queue="\d+",rank="0"\} [1-9]')
        self.assertRegex(text, rf'\nheadrace_subscriber_samples_total\{{[^}}]*pid="{pids[2]}",loader="0"\}} [1-9]')

    def check_trace(self, agent, pids):
        path = os.path.join(self.root, "trace.json")
        self.assertEqual(self.run_it("agent", "--trace", path, "--seconds", "1")[0], 0)
        with open(path, encoding="utf-8") as f:
            events = json.load(f)["traceEvents"]
        by_name = {}
        for e in events:
            by_name.setdefault(e["name"], []).append(e)
        samples = by_name["sample"]
        self.assertGreater(len(samples), 10)
        for e in samples:
            self.assertEqual((e["ph"], e["pid"]), ("X", agent))
            self.assertIn(e["tid"], (1, 2))
            self.assertIn("queue", e["args"])
            self.assertLess(e["args"]["index"], 96)
        for name in ("takes", "releases"):
            self.assertEqual({e["pid"] for e in by_name[name]}, set(pids))
        self.assertEqual({e["pid"] for e in by_name["ready"]}, {agent})
        titles = [e["args"]["name"] for e in by_name["thread_name"]]
        self.assertTrue(any(re.fullmatch(r"queue \d+: stream one, rank 0 of 1", t) for t in titles), titles)

    def test_usage(self):
        one = "give only one of --stop, --status and --trace"
        running = ("--stop, --status and --trace are requests to a running agent: the only other option that they "
                   "take is --socket")
        for args, says in (
            (["--stop", "--status"], one),
            (["--stop", "--threads", "2"], running),
            (["--trace", "x", "--idle", "2"], running),
            (["--seconds", "2"], "--seconds needs --trace"),
            (["--trace", "x", "--seconds", "601"], "--seconds: it must be more than 0 and at most 600"),
            (["--threads", "0"], "--threads 0: it must be a number from 1 to 4096"),
            (["--idle", "-1"], "--idle -1: it must be a number, 0 or more"),
            (["now"], "one argument too many: now; see headrace agent --help"),
        ):
            self.expect(["agent", *args], 2, "", f"headrace agent: {says}\n")

    def test_wrong_values(self):
        for args, status, says in (
            (["--metrics", "x"], 2, r'metrics "x": it must be ADDRESS:PORT'),
            (["--cache", "lots"], 2, r"lots"),
            (["--socket", "/" + "x" * 200], 3, r"x{100}"),
        ):
            code, out, err = self.run_it("agent", *args)
            self.assertEqual((code, out), (status, ""), err)
            self.assertRegex(err, r"\Aheadrace agent: .*" + says)
            self.assertFalse(os.path.exists(self.socket))


if __name__ == "__main__":
    unittest.main()
