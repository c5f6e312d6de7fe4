"""Does only what stalls_paced.py's dataset does with its files: processes that alternately read a
file and sleep. Prints how long a process waits for a read, which is longer if several processes
read from a throttled disk.
"""

import argparse
import json
import multiprocessing
import statistics
import time

import stalls_common as common

LEAD_IN = 0.2  # of reads, until the processes are out of step and the disk has used its burst


def work(paths, prepare_s, answers):
    pace, waits = common.Pace(), []
    for path in paths:
        begun, cpu = time.perf_counter(), time.thread_time()
        with open(path, "rb", buffering=0) as f:
            f.readall()
        cpu = time.thread_time() - cpu
        waits.append(time.perf_counter() - begun - cpu)
        pace.sleep(prepare_s - cpu)
    answers.put(statistics.mean(waits[int(LEAD_IN * len(waits)):]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", required=True, help="paths, one a line")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--prepare-ms", type=float, required=True)
    args = parser.parse_args()
    common.exact_timers()
    with open(args.list, encoding="utf-8") as f:
        paths = f.read().splitlines()
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    workers = [context.Process(target=work, args=(paths[k::args.workers], args.prepare_ms / 1e3,
                                                  answers)) for k in range(args.workers)]
    for worker in workers:
        worker.start()
    waits = [answers.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    print(json.dumps({"wait_s": statistics.mean(waits)}))


if __name__ == "__main__":
    main()
