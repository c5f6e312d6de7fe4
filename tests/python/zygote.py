"""A process that has imported torch and forks to run scripts, because importing takes longer than
most of them. forked.py starts it and sends it the scripts.

Its argument is the descriptor of a socket. Each message is a JSON object: ``arguments`` (after the
interpreter's name: ``-c``, code, or ``-m``, a module, or a script's path, ...), ``cwd``, ``environment`` and
``session`` (whether the child begins one). Four descriptors come with it: standard input, output,
error, and a socket that gets the child's process id and, at its end, its status.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import types


def imports():
    """Imports what scripts import, and starts no thread."""
    import torch
    import torch.distributed
    import torch.optim
    import torch.utils.data

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports more
    if "headrace.stalls.hook" not in sys.modules:
        import headrace.torch  # noqa: F401
    gc.collect()
    gc.freeze()  # a child's collector leaves alone what it shares with this process


def serve(channel):
    """Forks for each message. Returns the message in a child, None at the end of messages."""
    ends = {}  # process ids of children: their sockets
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([channel, read], [], [])
        if read in ready:
            os.read(read, 1 << 12)
            with contextlib.suppress(ChildProcessError):
                while ended := os.waitpid(-1, os.WNOHANG)[0:2]:
                    if ended[0] == 0:
                        break
                    with ends.pop(ended[0]) as end, contextlib.suppress(BrokenPipeError):
                        end.send(str(os.waitstatus_to_exitcode(ended[1])).encode())
        if channel in ready:
            text, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 4)
            if not text:
                return None
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in ends.values():
                    end.close()
                for mine in read, write, descriptors[3]:
                    os.close(mine)
                channel.close()
                return {**json.loads(text), "descriptors": descriptors[:3]}
            for given in descriptors[:3]:
                os.close(given)
            ends[child] = socket.socket(fileno=descriptors[3])
            ends[child].send(str(child).encode())


def become(task):
    """Makes this process what a new Python is that was started so. Returns the code to run."""
    if task["session"]:
        os.setsid()
    for standard, given in enumerate(task["descriptors"]):
        os.dup2(given, standard)
        os.close(given)
    os.environ.clear()
    os.environ.update(task["environment"])
    os.chdir(task["cwd"])
    hook = sys.modules.get("headrace.stalls.hook")
    if hook is not None:
        hook._folder = os.environ["HEADRACE_STALLS_DIR"]
    main = types.ModuleType("__main__")
    first, *arguments = task["arguments"]
    if first == "-c":
        code, *arguments = arguments
        name, sys.path[0], sys.argv = "<string>", "", ["-c", *arguments]
    elif first == "-m":
        module, *arguments = arguments
        code = f"import runpy\nrunpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        name, sys.path[0], sys.argv = "<string>", os.getcwd(), [module, *arguments]
    else:
        with open(first, encoding="utf-8") as file:
            code = file.read()
        name, sys.path[0], sys.argv = first, os.path.dirname(first), [first, *arguments]
        main.__file__ = first
    sys.modules["__main__"] = main
    more = task["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in more if path and path not in sys.path]
    return compile(code, name, "exec", dont_inherit=True), main.__dict__


imports()
task = serve(socket.socket(fileno=int(sys.argv[1])))
if task is not None:
    failed = False
    try:
        exec(*become(task))
    except Exception as error:
        failed = True
        error.__traceback__ = error.__traceback__.tb_next  # without this file
        sys.excepthook(type(error), error, error.__traceback__)
    if failed:
        sys.exit(1)
