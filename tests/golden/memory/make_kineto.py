"""Makes kineto_cpu.json.gz: a real trace of a small network's training (PyTorch 2.13), without what
tells of the machine."""
import gzip, json, sys
import torch
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
kept = []
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    for _ in range(3):
        x, y = torch.randn(16, 32), torch.randint(0, 8, (16,))
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(torch.zeros(10))
        profiler.step()
    kept.pop()
profiler.export_chrome_trace("trace.json")
with open("trace.json") as file:
    trace = json.load(file)
for key in ("host_name", "traceName", "trace_id"):
    trace.pop(key, None)
with gzip.GzipFile(sys.argv[1], "wb", mtime=0) as file:
    file.write(json.dumps(trace).encode())
