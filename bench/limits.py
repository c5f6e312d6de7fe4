"""Runs processes under the kernel's limits: control groups (v1) of the controllers `memory`
and `blkio`, for benchmarks with scarce memory and disk.

A Group is one group of each of the two controllers. It limits the memory of its
processes, including the page cache (memory.limit_in_bytes), limits the bytes that they
read per second (blkio.throttle.read_bps_device), and returns the number of bytes that they
have read from a disk, as counted by the kernel (blkio.throttle.io_service_bytes). Needs
root; Unavailable says what else is missing.
"""

import contextlib
import os
import re
import statistics
import threading
import time

CONTROLLERS = ("memory", "blkio")
LEAVE_SECONDS = 10.0


class Unavailable(Exception):
    """Limits cannot be set here; str() is the reason."""


def parse_mounts(text):
    """Parses /proc/mounts: {controller of version 1: its mount point}."""
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[2] == "cgroup":
            for controller in CONTROLLERS:
                if controller in fields[3].split(","):
                    found[controller] = fields[1]
    return found


def parse_own(text):
    """Parses /proc/self/cgroup: {controller: path of this process's group}."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in CONTROLLERS:
            if controller in controllers.split(","):
                found[controller] = path.strip("/")
    return found


def parse_read_bytes(text, device):
    """Parses blkio.throttle.io_service_bytes: bytes read from `device` ("major:minor")."""
    for line in text.splitlines():
        fields = line.split()
        if fields[:2] == [device, "Read"]:
            return int(fields[2])
    return 0


def parse_memory(text):
    """Parses memory.stat: bytes of anonymous and shared memory."""
    values = dict(line.split() for line in text.splitlines())
    return int(values["total_rss"]) + int(values["total_shmem"])


def device_of(path):
    """"major:minor" of the whole disk that `path` lies on."""
    number = os.stat(path).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    place = os.path.realpath(f"/sys/dev/block/{device}")
    if not os.path.isdir(place):
        raise Unavailable(f"the files lie on no disk of this machine (device {device})")
    if os.path.exists(os.path.join(place, "partition")):
        place = os.path.dirname(place)
    with open(os.path.join(place, "dev")) as f:
        return f.read().strip()


def read(*parts):
    with open(os.path.join(*parts)) as f:
        return f.read()


def write(text, *parts):
    with open(os.path.join(*parts), "w") as f:
        f.write(str(text))


def own_folders():
    """Returns {controller: the folder in which groups are made}."""
    mounts, own = parse_mounts(read("/proc/mounts")), parse_own(read("/proc/self/cgroup"))
    missing = [c for c in CONTROLLERS if c not in mounts]
    if missing:
        raise Unavailable(f"no control groups of version 1 for {' and '.join(missing)}")
    found = {}
    for controller in CONTROLLERS:
        parent = os.path.join(mounts[controller], own.get(controller, ""))
        # In a container that sees only its own root.
        found[controller] = parent if os.path.isdir(parent) else mounts[controller]
    return found


def remove_left_behind():
    """Removes empty groups that killed processes left."""
    for folder in own_folders().values():
        for name in os.listdir(folder):
            found = re.fullmatch(r"headrace-bench-(\d+)-.*", name)
            if found and not os.path.exists(f"/proc/{found.group(1)}"):
                with contextlib.suppress(OSError):  # processes in it outlived their parent
                    os.rmdir(os.path.join(folder, name))


class Group:
    """One group of each controller. A context manager, which removes them."""

    def __init__(self, name, data):
        """`data`: a path on the disk that is limited and counted."""
        parents = own_folders()
        self.device = device_of(data)
        self.folders = {}
        try:
            for controller, parent in parents.items():
                folder = os.path.join(parent, f"headrace-bench-{os.getpid()}-{name}")
                os.mkdir(folder)
                self.folders[controller] = folder
        except OSError as error:
            self.close()
            raise Unavailable(f"a control group cannot be made: {error.strerror}; run it as root"
                              ) from None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def command(self, command):
        """Returns the command that runs `command` inside the group."""
        join = 'echo $$ >"$0/cgroup.procs" && echo $$ >"$1/cgroup.procs" && shift && exec "$@"'
        return ["sh", "-c", join, self.folders["memory"], self.folders["blkio"], *command]

    def limit_memory(self, limit_bytes):
        write(limit_bytes, self.folders["memory"], "memory.limit_in_bytes")

    def limit_reads(self, bytes_per_second):
        """Limits reads from the disk. 0: no limit."""
        write(f"{self.device} {bytes_per_second}", self.folders["blkio"],
              "blkio.throttle.read_bps_device")

    def read_bytes(self):
        """Returns what the group's processes have read from the disk."""
        return parse_read_bytes(read(self.folders["blkio"], "blkio.throttle.io_service_bytes"),
                                self.device)

    def memory(self):
        """Returns the bytes of the group's anonymous and shared memory."""
        return parse_memory(read(self.folders["memory"], "memory.stat"))

    def out_of_memory_kills(self):
        values = dict(line.split() for line in
                      read(self.folders["memory"], "memory.oom_control").splitlines())
        return int(values.get("oom_kill", 0))

    def processes_read_bytes(self):
        """Returns the same from another counter of the kernel: /proc/PID/io of the live
        processes."""
        total = 0
        for pid in read(self.folders["blkio"], "cgroup.procs").split():
            with contextlib.suppress(OSError):  # the process has just ended
                values = dict(line.split(": ") for line in read("/proc", pid, "io").splitlines())
                total += int(values["read_bytes"])
        return total

    def close(self):
        """Removes the groups once their processes have ended. It does not kill them."""
        for folder in self.folders.values():
            until = time.monotonic() + LEAVE_SECONDS
            while True:
                try:
                    os.rmdir(folder)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.02)


def slope(points):
    """Returns the slope of the least-squares line through points (time, amount). A throttled disk
    delivers in bursts, so the amount divided by the time could be wrong by one burst."""
    times, amounts = zip(*points)
    middle, mean = statistics.mean(times), statistics.mean(amounts)
    along = sum((t - middle) ** 2 for t in times)
    return sum((t - middle) * (a - mean) for t, a in points) / along


class Flow:
    """Records the bytes that a group reads from the disk while the block runs."""

    INTERVAL_S = 0.01

    def __init__(self, group):
        self.group = group
        self.points = []  # (time, bytes)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self.ended.wait(self.INTERVAL_S):
            self.points.append((time.monotonic(), self.group.read_bytes()))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.ended.set()
        self.thread.join()

    def rate(self, last_s):
        """Returns the bytes per second of the last so many seconds in which anything was read."""
        most = self.points[-1][1]
        end = next(time for time, amount in self.points if amount == most)
        return slope([point for point in self.points if end - last_s <= point[0] <= end])


class Peak:
    """Records the peak of a group's anonymous and shared memory while the block runs."""

    INTERVAL_S = 0.05

    def __init__(self, group):
        self.group = group
        self.bytes = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while True:
            self.bytes = max(self.bytes, self.group.memory())
            if self.ended.wait(self.INTERVAL_S):
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.ended.set()
        self.thread.join()
