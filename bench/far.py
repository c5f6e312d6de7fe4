"""Two hosts with a long way between them, on one machine: network namespaces and bench_link.

A server in one of them, a client in the other; both reach each other only over the link, which has
a rate, a round trip and a queue in each direction. Needs root and /dev/net/tun; limits.Unavailable
says what is missing. Names contain this process' id, so that namespaces.remove_left_behind removes
what a killed run left. The queue holds what several connections send at once: on a link of 1 Gbit/s
and 40 ms, 5 MB are on the way, and 200 ms of queue are 25 MB.
"""

import os
import subprocess

import limits
import namespaces

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
SERVER, CLIENT = "10.78.0.1", "10.78.0.2"


class Far:
    """A context manager."""

    def __init__(self, bits_per_second, round_trip_s, queue_ms=200):
        if os.geteuid() != 0:
            raise limits.Unavailable("network namespaces need root")
        namespaces.remove_left_behind()
        self.names = [namespaces.namespace_name(os.getpid(), n) for n in (0, 1)]
        self.link = None
        try:
            for name in self.names:
                namespaces.run("ip", "netns", "add", name)
            self.link = subprocess.Popen(
                [os.path.join(BUILD, "bench", "bench_link"), *self.names, str(bits_per_second),
                 str(round(round_trip_s * 5e5)), str(queue_ms)], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if self.link.stdout.readline() != "ready\n":
                raise limits.Unavailable(self.link.stderr.read().strip()[-200:])
            for name, address in zip(self.names, (SERVER, CLIENT)):
                inside = ("ip", "-n", name)
                namespaces.run(*inside, "addr", "add", f"{address}/24", "dev", "far0")
                for device in ("lo", "far0"):
                    namespaces.run(*inside, "link", "set", device, "up")
                # else the losses of one peer would slow the next one's connections
                namespaces.run("nsenter", f"--net={namespaces.RUN}/{name}", "sh", "-c",
                               "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save")
        except BaseException:
            self.close()
            raise

    def server(self, command):
        """Returns the command that runs `command` at the server."""
        return ["nsenter", f"--net={namespaces.RUN}/{self.names[0]}", *command]

    def client(self, command):
        return ["nsenter", f"--net={namespaces.RUN}/{self.names[1]}", *command]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        with namespaces.ignored_interrupts():
            if self.link:
                self.link.stdin.close()
                self.link.wait()
            for name in self.names:
                namespaces.remove_namespace(name)
