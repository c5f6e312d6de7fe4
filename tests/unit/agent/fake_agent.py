"""A stand-in for the agent: says how it was started, and answers who asks.

Usage: fake_agent.py DIRECTORY --listener FD --idle SECONDS. Writes DIRECTORY/PID.json (what it
finds itself to be), then answers each message "who" on each connection with its process id,
and ends at "end", when nobody has been connected for MS milliseconds, or after a minute.
"""

import json
import os
import select
import socket
import sys
import time


def status(name):
    with open("/proc/self/status", encoding="ascii") as f:
        return next(line.split()[1] for line in f if line.startswith(name + ":"))


def facts(arguments):
    return {"arguments": arguments, "pid": os.getpid(), "parent": os.getppid(),
            "session": os.getsid(0), "group": os.getpgid(0), "blocked": status("SigBlk"),
            "ignored": status("SigIgn"), "directory": os.getcwd(),
            "files": {name: os.readlink("/proc/self/fd/" + name)
                      for name in os.listdir("/proc/self/fd")
                      if os.path.lexists("/proc/self/fd/" + name)}}


def serve(listener, idle_s):
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    jobs, end, last = {}, time.monotonic() + 60, time.monotonic()
    while time.monotonic() < end and (jobs or time.monotonic() - last < idle_s):
        for fd, _ in poll.poll(100):
            if fd == listener.fileno():
                job, _ = listener.accept()
                jobs[job.fileno()] = job
                poll.register(job, select.POLLIN)
                continue
            try:
                message = jobs[fd].recv(100)
            except ConnectionError:
                message = b""
            if message == b"end":
                return
            if message:
                jobs[fd].send(str(os.getpid()).encode())
            else:
                poll.unregister(fd)
                jobs.pop(fd).close()
                last = time.monotonic()


def main():
    folder, _, fd, _, idle_s = sys.argv[1:]
    found = os.path.join(folder, f"{os.getpid()}.json")
    with open(found + ".new", "w", encoding="utf-8") as f:
        json.dump(facts(sys.argv[2:]), f)
    os.rename(found + ".new", found)
    print("the stand-in runs", file=sys.stderr)
    serve(socket.socket(fileno=int(fd)), float(idle_s))


main()
