"""A process that has imported torch under the probe's hook and forks to run scripts, because
importing takes longer than most of them.

Each line of standard input is a JSON object: ``script``, ``folder`` (of the run), ``cwd``,
``stdout`` and ``stderr`` (paths). Answers with two lines: the child's process id and, once it has
ended, its exit status as in ``subprocess``.
"""

import json
import os
import runpy
import sys

import torch
import torch.distributed
import torch.optim
import torch.utils.data

torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports more

task = None
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        task = json.loads(line)
        break
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

if task is not None:
    for name, fd in ("stdout", 1), ("stderr", 2):
        opened = os.open(task[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, fd)
        os.close(opened)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.environ["HEADRACE_STALLS_DIR"] = task["folder"]
    sys.modules["headrace.stalls.hook"]._folder = task["folder"]
    os.chdir(task["cwd"])
    sys.argv = [task["script"]]
    runpy.run_path(task["script"], run_name="__main__")
