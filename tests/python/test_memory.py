"""Memory: bounded, flat over epochs, given back."""

from conftest import run_python

CODE = """
import ctypes, sys, time
import headrace, headrace.transforms as T
from headrace.torch import DataLoader

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

pairs = [s for s in headrace.ImageFolder(sys.argv[1]).samples] * 4
d = headrace.ImageList(pairs, T.Compose([T.RandomResizedCrop(224), T.ToTensor()]))
before = resident()
loader = DataLoader(d, 16, num_workers=int(sys.argv[2]), shuffle=True)
# Two batches held and all others ready: every planned slot has been used once.
held = [batch for _, batch in zip(range(2), loader)]
while loader.stats()["ready_batches"] < loader.prefetch_factor:
    time.sleep(0.01)
del held
peaks = []
for epoch in range(20):
    peak = 0
    for images, labels in loader:
        peak = max(peak, resident())
    peaks.append(peak)
stats = loader.stats()
allowed = stats["slots"] * stats["slot_bytes"] + (64 << 20)
print(max(peaks) - before, allowed, max(peaks[10:]) - max(peaks[2:10]), stats["grown_slots"])
del images, labels
loader.close()
ctypes.CDLL(None).malloc_trim(0)
print(resident() - before)
"""


def test_resident_memory_is_bounded_and_flat(folder):
    for threads in ("1", "4"):
        done = run_python(CODE, str(folder), threads)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        used, allowed, growth, grown = map(int, lines[0].split())
        assert used <= allowed
        assert growth <= 2 << 20
        assert grown == 0
        assert int(lines[1]) < 40 << 20
