"""Lists a folder with torchvision's ImageFolder. Prints the seconds as one JSON line."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import torchvision_shim

torchvision_shim.prepare()
from torchvision.datasets import ImageFolder

start = time.perf_counter()
dataset = ImageFolder(sys.argv[1])
print(json.dumps({"seconds": time.perf_counter() - start, "samples": len(dataset)}))
