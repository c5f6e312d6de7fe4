#!/usr/bin/env python3
"""headrace cache servers: its output for real memcached servers, and for other servers."""
import json
import os
import shutil
import socket
import subprocess
import time
import unittest

from harness import CliCase

MEMCACHED = shutil.which("memcached")
LIST = "memcached:"


@unittest.skipUnless(MEMCACHED, "there is no memcached on this machine")
class Servers(CliCase):
    def setUp(self):
        super().setUp()
        self.env.pop("HEADRACE_HOST", None)

    def start(self, *options, path=None):
        """Starts a server that ends with the test; returns (port or path, process)."""
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        where = ["-s", path] if path else ["-l", "127.0.0.1", "-p", str(port), "-U", "0"]
        p = subprocess.Popen([MEMCACHED, *user, *where, *options], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.stop, p)
        for _ in range(500):
            with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as s:
                if s.connect_ex(path or ("127.0.0.1", port)) == 0:
                    return path or port, p
            time.sleep(0.01)
        self.fail("memcached did not come up")

    def stop(self, p):
        p.kill()
        p.wait()

    def store(self, port, count, length):
        with socket.create_connection(("127.0.0.1", port)) as s:
            for i in range(count):
                s.sendall(b"set key%d 0 0 %d\r\n" % (i, length) + b"x" * length + b"\r\n")
                self.assertEqual(s.recv(100), b"STORED\r\n")

    def read_json(self, text, status):
        found, out, err = self.run_it("cache", "servers", text, "--json")
        self.assertEqual((found, err), (status, ""))
        root = json.loads(out)
        self.assertEqual(root["layout"], 1)
        return root

    def test_one_that_is_right(self):
        port, _ = self.start("-M", "-m", "64", "-I", "8m")
        self.store(port, 3, 1000)
        version = subprocess.run([MEMCACHED, "-V"], capture_output=True).stdout.decode().split()[1]
        server, = self.read_json(f"{LIST}127.0.0.1:{port}?size=48MiB", 0)["servers"]
        used, uptime = server.pop("used_bytes"), server.pop("uptime_s")
        self.assertTrue(3000 < used < 4000 and uptime < 60, (used, uptime))
        self.assertEqual(server, {
            "name": f"127.0.0.1:{port}", "is_self": True, "is_up": True, "problems": [],
            "version": version, "budget_bytes": 48 << 20, "limit_bytes": 64 << 20, "items": 3,
            "share": 0.75, "evicts": False, "evictions": 0, "item_max_bytes": 8 << 20})
        status, out, err = self.run_it("cache", "servers", f"{LIST}127.0.0.1:{port}?size=48MiB")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, rf"""\A  SERVER                   PLANNED    MEMORY  SHARE      USED     ITEMS   VERSION
\* 127\.0\.0\.1:{port} *  48\.0 MiB  64\.0 MiB   75 %  3\.\d\d KiB         3 *{version}

1 of 1 server answers; 48\.0 MiB of items planned in 64\.0 MiB of memory; items up to 8\.00 MiB
\* this machine's own
\Z""")

    def test_problems(self):
        good, _ = self.start("-M", "-m", "64", "-I", "8m")
        bad, _ = self.start("-m", "64", "-I", "512k")
        dead, p = self.start("-M")
        self.stop(p)
        text = (f"{LIST}127.0.0.1:{good}=48MiB,127.0.0.1:{bad}=60MiB,127.0.0.1:{dead}"
                "?size=1GiB&self=2")
        status, out, err = self.run_it("cache", "servers", text)
        self.assertEqual((status, err), (1, ""))
        lines = out.splitlines()
        self.assertRegex(lines[2], rf"^  127\.0\.0\.1:{bad} +60\.0 MiB +64\.0 MiB +94 % ")
        self.assertRegex(lines[3], rf"^\* 127\.0\.0\.1:{dead} +1\.00 GiB  does not answer$")
        self.assertEqual(lines[5], "2 of 3 servers answer; 1.11 GiB of items planned in 128 MiB "
                                   "of memory; items up to 512 KiB")
        self.assertEqual(lines[8:11], [
            f"problem: 127.0.0.1:{bad} evicts items when it is full: start it with -M",
            f"problem: 127.0.0.1:{bad} has 64.0 MiB, and at most three quarters of it should "
            "be planned for items, not 60.0 MiB (94 %): give it a size of 48MiB, or start it "
            "with -m 81",
            f"problem: 127.0.0.1:{bad} refuses items of more than 512 KiB: start it with -I 8m"])
        self.assertRegex(lines[11], f"^problem: 127.0.0.1:{dead} refuses connections")
        self.assertEqual(len(lines), 12)
        servers = self.read_json(text, 1)["servers"]
        self.assertEqual([s["is_up"] for s in servers], [True, True, False])
        self.assertEqual([len(s["problems"]) for s in servers], [0, 3, 1])
        self.assertEqual([s["is_self"] for s in servers], [False, False, True])
        self.assertNotIn("items", servers[2])

    def test_which_is_this_machine(self):
        a, _ = self.start("-M")
        b, _ = self.start("-M")
        text = f"{LIST}127.0.0.1:{a},127.0.0.1:{b}?size=1MiB"
        several = f"hosts 127.0.0.1:{a} and 127.0.0.1:{b} are both this machine"
        root = self.read_json(text, 0)
        self.assertTrue(root["self_problem"].startswith(several), root)
        self.assertIn(several, self.run_it("cache", "servers", text)[1])
        self.env["HEADRACE_HOST"] = "1"
        root = self.read_json(text, 0)
        self.assertIsNone(root["self_problem"])
        self.assertEqual([s["is_self"] for s in root["servers"]], [False, True])

    def test_unix_socket(self):
        path = os.path.join(self.root, "mc.sock")
        os.chmod(self.root, 0o777)
        self.start("-M", "-m", "64", path=path)
        server, = self.read_json(f"{LIST}{path}?size=1MiB", 0)["servers"]
        self.assertTrue(server["is_up"] and server["is_self"])

    def test_one_that_hangs(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            port = s.getsockname()[1]
            server, = self.read_json(f"{LIST}127.0.0.1:{port}?size=1MiB&timeout=200ms", 1)["servers"]
            self.assertFalse(server["is_up"])


class Arguments(CliCase):
    def test_wrong(self):
        for args, status, message in (
            ([], 2, "cache servers: an argument is missing; usage: headrace cache servers SPEC [options]"),
            (["64GiB"], 3, 'cache servers: cache "64GiB" is not a list of hosts: write '
                           "memcached:NAME:PORT,NAME:PORT?size=64GiB"),
            (["memcached:a"], 3, 'cache servers: cache "memcached:a": host a:11211 needs a size: '
                                 "write ?size=64GiB for all hosts, or a:11211=64GiB"),
            (["memcached:a?size=1GiB&user=x&password-file=/none"], 3, None),
        ):
            found, out, err = self.run_it("cache", "servers", *args)
            self.assertEqual((found, out), (status, ""), err)
            if message:
                self.assertEqual(err, f"headrace {message}\n")
            else:
                self.assertIn("/none", err)


if __name__ == "__main__":
    unittest.main()
