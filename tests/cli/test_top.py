#!/usr/bin/env python3
"""headrace top: plain text and JSON of a fake agent, and the screen on a real terminal (a pty): its
contents, other sizes, and that the terminal is restored."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from harness import EXE, CliCase, png

FAKE = os.environ["HEADRACE_FAKE_AGENT"]
JOB = os.environ["HEADRACE_AGENT_JOB"]
GOLDEN = os.path.join(os.environ["HEADRACE_SOURCE_ROOT"], "tests", "cli", "top")
BEFORE, AFTER = (os.path.join(GOLDEN, name) for name in ("before.json", "after.json"))
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


def golden(name):
    with open(os.path.join(GOLDEN, name), encoding="utf-8") as f:
        return f.read()


class Screen:
    """A command on a terminal of its own, and its output there."""

    def __init__(self, args, env, columns=80, rows=40):
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.seen = ""
        self.process = subprocess.Popen(args, stdin=self.slave, stdout=self.slave, stderr=subprocess.PIPE,
                                        env=dict(env, TERM="xterm"), start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, done, what, seconds=600):
        """Reads until `done` is true for all output."""
        end = time.monotonic() + seconds
        while not done(self.seen):
            if time.monotonic() > end:
                raise AssertionError(f"{what} does not come; seen: {self.seen[-3000:]!r}")
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")

    def until_text(self, text):
        self.until(lambda seen: text in seen, text)

    def frame(self):
        """Returns the last complete screen, without control codes."""
        frames = [f.split("\x1b[J")[0] for f in self.seen.split("\x1b[H") if "\x1b[J" in f]
        return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", frames[-1]).replace("\r", "") if frames else ""

    def until_drawn(self, text):
        self.until(lambda seen: text in self.frame(), text)
        return self.frame()

    def press(self, keys):
        os.write(self.master, keys)

    def close(self):
        """Waits for the end; returns (exit status, standard error); the rest of the output is in
        `seen`."""
        end = time.monotonic() + 600
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        while select.select([self.master], [], [], 0.05)[0]:
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        status, err = self.process.poll(), self.process.stderr.read().decode()
        self.process.stderr.close()
        return status, err

    def is_as_before(self):
        return termios.tcgetattr(self.slave) == self.before and self.seen.rstrip().endswith(LEAVE)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        os.close(self.slave)
        os.close(self.master)


class Top(CliCase):
    def setUp(self):
        super().setUp()
        self.socket = os.path.join(self.root, "run", "agent.sock")
        self.env["HEADRACE_AGENT"] = self.socket

    def play(self, *files):
        p = subprocess.Popen([FAKE, self.socket, *files], stdout=subprocess.PIPE)
        self.addCleanup(self.end, p)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        return p

    def end(self, p):
        if p.poll() is None:
            p.kill()
        p.wait()
        p.stdout.close()

    def screen(self, *args, **size):
        s = Screen([EXE, "top", *args], self.env, **size)
        self.addCleanup(s.end)
        return s

    def test_nobody(self):
        status, out, err = self.run_it("top", "--once")
        self.assertEqual((status, out), (3, ""))
        self.assertEqual(err, f"headrace top: no agent serves {self.socket}: headrace agent starts one, and so "
                              'does a loader with agent "auto"\n')

    def job(self, *arguments):
        p = subprocess.Popen([JOB, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.env)
        self.addCleanup(self.end, p)
        self.addCleanup(p.stdin.close)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        return p

    def test_loaders(self):
        """Loaders of this user's processes, without an agent, and with one that knows nothing of them."""
        for i in range(32):
            self.write(f"set/{'ab'[i % 2]}/{i}.png", png(64, 48))
        jobs = [self.job("", "", os.path.join(self.root, "set"), batch, "2000") for batch in ("4", "8")]
        status, out, err = self.run_it("top", "--once", "--json", "--interval", "1.2")
        self.assertEqual((status, err), (0, ""))
        seen = json.loads(out)
        self.assertNotIn("pid", seen)
        self.assertEqual({x["pid"] for x in seen["loaders"]}, {p.pid for p in jobs})
        for x in seen["loaders"]:
            self.assertGreater(x["samples_per_s"], 0)
            self.assertGreater(x["seconds"], 0)
            self.assertTrue(x["program"].startswith("agent_job "), x)
        text = self.run_it("top", "--once", "--interval", "0.1")[1]
        self.assertTrue(text.startswith("headrace   no agent   2 loaders\n"), text)
        for p in jobs:
            self.assertIn(f"\nprocess {p.pid}   agent_job ", text)
        # With an agent, both; of a socket that was named, the agent alone.
        self.play(BEFORE, AFTER)
        text = self.run_it("top", "--once", "--interval", "0.1")[1]
        self.assertIn("stream hyper", text)
        self.assertIn(f"\nprocess {jobs[0].pid}   agent_job ", text)
        text = self.run_it("top", "--once", "--interval", "0.1", "--socket", self.socket)[1]
        self.assertNotIn(f"\nprocess {jobs[0].pid}", text)

    def test_until_the_last_loader_ends(self):
        for i in range(8):
            self.write(f"set/a/{i}.png", png(64, 48))
        job = self.job("", "", os.path.join(self.root, "set"), "2", "2000")
        s = self.screen("--interval", "0.2")
        s.until_drawn(f"process {job.pid}")
        job.kill()
        self.assertEqual(s.close(), (0, "headrace top: the last loader has ended\n"))

    def test_usage(self):
        for args, says in ((["--interval", "0"], "--interval: it must be a number from 0.1 to 3600"),
                           (["x"], "one argument too many: x; see headrace top --help"),
                           (["--socket"], "--socket needs a value: --socket PATH")):
            self.expect(["top", *args], 2, "", f"headrace top: {says}\n")

    def test_once(self):
        self.play(BEFORE, AFTER)
        text = golden("80.txt").replace("*", "")
        self.expect(["top", "--once", "--interval", "0.1"], 0, text)
        # from another position, and nothing has changed
        self.env["HEADRACE_AGENT"] = "/nonexistent/agent.sock"
        status, out, err = self.run_it("top", "--once", "--interval", "0.1", "--socket", self.socket)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("stream hyper", out)

    def test_json(self):
        self.play(BEFORE, AFTER)
        status, out, err = self.run_it("top", "--once", "--json", "--interval", "0.1")
        self.assertEqual((status, err, out.count("\n")), (0, "", 1))
        with open(AFTER, encoding="utf-8") as f:
            plain = json.load(f)
        rated = json.loads(out)
        self.assertEqual(rated["seconds"], 2)
        self.assertEqual(rated["streams"][0]["queues"][0]["samples_per_s"], 1204)
        self.assertIsNone(rated["streams"][0]["queues"][1]["samples_per_s"])
        self.assertEqual({k: rated[k] for k in plain if k != "streams"}, {k: plain[k] for k in plain if k != "streams"})

    def test_until_the_agent_ends(self):
        p = self.play(BEFORE, AFTER, "end")
        status, out, err = self.run_it("top", "--interval", "0.1")
        self.assertEqual((status, err), (0, "headrace top: the agent has ended\n"))
        self.assertEqual(out, golden("80.txt").replace("*", ""))
        self.assertEqual(p.wait(600), 0)

    def test_nonsense(self):
        self.play(self.write("nonsense", b"[1]").decode())
        self.expect(["top", "--once"], 3, "",
                    "headrace top: the agent's status is not a JSON object: is it of another version?\n")

    def test_screen(self):
        self.play(BEFORE, AFTER)
        s = self.screen("--interval", "3600")
        self.assertEqual(s.until_drawn("1,204"), golden("80.txt").replace("*", "") + "q: quit")
        self.assertIn(ENTER, s.seen)
        local = termios.tcgetattr(s.slave)[3]
        self.assertFalse(local & (termios.ECHO | termios.ICANON))
        s.press(b"xq")
        self.assertEqual(s.close(), (0, ""))
        self.assertTrue(s.is_as_before())

    def test_screen_of_other_sizes(self):
        self.play(BEFORE, AFTER)
        s = self.screen("--interval", "3600", columns=120)
        self.assertEqual(s.until_drawn("1,204"), golden("120.txt").replace("*", "") + "q: quit")
        s.seen = ""
        s.resize(80, 10)
        lines = golden("80.txt").replace("*", "").splitlines()
        self.assertEqual(s.until_drawn("more lines").split("\n"), [*lines[:9], f"{len(lines) - 9} more lines; q: quit"])
        s.press(b"q")
        self.assertEqual(s.close(), (0, ""))
        self.assertTrue(s.is_as_before())

    def test_screen_and_signals(self):
        self.play(BEFORE)
        for send, status in ((lambda s: s.press(b"\x03"), 130),
                             (lambda s: s.process.send_signal(signal.SIGTERM), 0),
                             (lambda s: s.process.send_signal(signal.SIGHUP), 0)):
            s = self.screen()
            s.until_drawn("stream hyper")
            send(s)
            self.assertEqual(s.close(), (status, ""))
            self.assertTrue(s.is_as_before())

    def test_screen_suspended(self):
        self.play(BEFORE)
        s = self.screen("--interval", "3600")
        s.until_drawn("stream hyper")
        s.process.send_signal(signal.SIGTSTP)
        s.until_text(LEAVE)
        pid, status = os.waitpid(s.process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        self.assertEqual(termios.tcgetattr(s.slave), s.before)
        s.seen = ""
        s.process.send_signal(signal.SIGCONT)
        s.until_drawn("stream hyper")
        self.assertIn(ENTER, s.seen)
        s.press(b"q")
        self.assertEqual(s.close(), (0, ""))
        self.assertTrue(s.is_as_before())

    def test_screen_of_an_agent_that_ends(self):
        self.play(BEFORE, AFTER, "end")
        s = self.screen("--interval", "0.2")
        self.assertEqual(s.close(), (0, "headrace top: the agent has ended\n"))
        self.assertTrue(s.is_as_before())

    def test_screen_of_an_agent_that_is_stopped(self):
        p = self.play(BEFORE)
        s = self.screen("--interval", "0.1")
        s.until_drawn("stream hyper")
        p.send_signal(signal.SIGSTOP)
        s.until_drawn("no answer")
        s.seen = ""
        p.send_signal(signal.SIGCONT)
        s.until_drawn("q: quit")
        s.press(b"q")
        self.assertEqual(s.close(), (0, ""))


if __name__ == "__main__":
    unittest.main()
