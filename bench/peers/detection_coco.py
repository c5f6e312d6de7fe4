"""Opens a COCO file and prints the seconds, and the peak memory above that of the program before."""

import json
import resource
import sys
import time

import headrace

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began, cpu = time.perf_counter(), time.process_time()
dataset = headrace.CocoDetection(".", sys.argv[1])
seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "cpu_seconds": cpu,
                  "rss_mb": (peak - before) * 1024 / 1e6,
                  "samples": len(dataset)}))
