#!/usr/bin/env python3
"""Importers of memory records: pickles against Python's own, snapshots with the structure that
PyTorch writes, a real Kineto trace, raw timelines.

HEADRACE_IMPORT_DUMP prints the values of a pickle, or what an imported file became.
"""
import gzip
import json
import os
import pickle
import pickletools
import random
import struct
import subprocess
import tempfile
import unittest
from collections import Counter
from pathlib import Path

DUMP = os.environ["HEADRACE_IMPORT_DUMP"]
ROOT = Path(os.environ["HEADRACE_SOURCE_ROOT"])
SHARED = Path(os.environ.get("HEADRACE_SHARED_DATA", ROOT.parent / "shared" / "data"))


def text_of(value):
    """As import_dump prints it."""
    if isinstance(value, str):
        return "s" + value.encode("utf-8", "surrogatepass").hex()
    if isinstance(value, bytes):
        return "b" + value.hex()
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, (list, tuple)):
        inside = "".join(text_of(v) + "," for v in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return "{" + "".join(f"{text_of(k)},{text_of(v)}," for k, v in value.items()) + "}"
    return str(value)


def c_real(text):
    return float.fromhex(text).hex()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-import-test-"))
        self.addCleanup(subprocess.run, ["rm", "-rf", self.folder])

    def dump(self, *args):
        return subprocess.run([DUMP, *map(str, args)], capture_output=True, text=True, timeout=120)

    def write(self, data, name="file"):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def read_pickle(self, data):
        return self.dump("pickle", self.write(data))

    def imported(self, data):
        """Facts, and events as dicts."""
        path = data if isinstance(data, Path) else self.write(data)
        done = self.dump("import", path, self.folder / "record")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts, events = {}, []
        for line in done.stdout.splitlines():
            if line.startswith("# "):
                name, _, value = line[2:].partition("=")
                facts[name] = value
            else:
                ns, kind, address, size, device, phase, *what = line.split(" ", 6)
                events.append({"ns": int(ns), "kind": kind, "address": int(address, 16),
                               "bytes": int(size), "device": int(device), "phase": int(phase),
                               "what": what[0] if what else ""})
        self.assertEqual([e["ns"] for e in events], sorted({e["ns"] for e in events}))
        return facts, events

    def refused(self, data, code, words):
        path = data if isinstance(data, Path) else self.write(data)
        done = self.dump("import", path, self.folder / "record")
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertTrue(done.stderr.startswith(code + ": "), done.stderr)
        self.assertIn(words, done.stderr)
        self.assertFalse((self.folder / "record").exists())


def live(events, device=None):
    """Bytes that live after each event, by the rules of a record."""
    blocks, total, out = {}, 0, []
    for e in events:
        key = e["device"], e["address"]
        if device is None or e["device"] == device:
            if e["kind"] in ("alloc", "present"):
                assert key not in blocks
                blocks[key] = e["bytes"]
                total += e["bytes"]
            elif e["kind"] == "free":
                total -= blocks.pop(key)
        out.append(total)
    return out


class Pickles(Case):
    def value(self, rng, depth=0):
        kinds = ["none", "bool", "int", "float", "str", "long"]
        kind = rng.choice(kinds + ["list", "tuple", "dict", "shared"] * (depth < 5))
        if kind == "none":
            return None
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "int":
            return rng.randint(-(1 << rng.randint(1, 40)), 1 << rng.randint(1, 40))
        if kind == "long":
            return rng.choice([-1, 1]) * rng.getrandbits(62) or rng.getrandbits(64) | 1 << 63
        if kind == "float":
            return rng.choice([rng.random(), rng.uniform(-1e300, 1e300), 0.5, 1e-310])
        if kind == "str":
            return "".join(rng.choice(["a", "é", "\\", "\n", "\0", "\u20ac", "\U0001f600", "'",
                                       "\x1a", "\udc80"]) for _ in range(rng.randint(0, 12)))
        if kind == "list":
            return [self.value(rng, depth + 1) for _ in range(rng.randint(0, 6))]
        if kind == "tuple":
            return tuple(self.value(rng, depth + 1) for _ in range(rng.randint(0, 5)))
        if kind == "shared":
            one = self.value(rng, depth + 1)
            return [one, (one, one)]
        return {rng.choice(["key", "name", 3, None]) if rng.random() < 0.3 else f"k{i}":
                self.value(rng, depth + 1) for i in range(rng.randint(0, 6))}

    def check(self, value, data):
        done = self.read_pickle(data)
        self.assertEqual(done.returncode, 0, done.stderr)
        got = done.stdout.rstrip("\n")
        # C and Python write the same real in different ways.
        same = lambda text: ",".join(c_real(t) if "0x" in t and t[0] not in "sb" else t
                                     for t in text.split(","))
        self.assertEqual(same(self.tidy(got)), same(self.tidy(text_of(value))))

    @staticmethod
    def tidy(text):
        for bracket in "[({":
            text = text.replace(bracket, bracket + ",")
        return text

    def test_random_values_of_every_protocol(self):
        rng = random.Random(8)
        for _ in range(12):
            value = [self.value(rng) for _ in range(20)]
            for protocol in range(2, 6):
                data = pickle.dumps(value, protocol)
                self.check(value, data)
            self.check(value, pickletools.optimize(data))
            self.check(value, gzip.compress(data))

    def test_edges(self):
        long_list = list(range(2500))
        for value in (b"", b"x" * 300, "x" * 70000, long_list, {i: -i for i in range(2100)},
                      -(1 << 63), (1 << 64) - 1, -128, -32769, 255, 256, 65536, 1 << 31, ()):
            for protocol in range(3, 6):
                self.check(value, pickle.dumps(value, protocol))
        for value in (long_list, True, False, -1, (1 << 63), "é", float("inf")):
            if value != float("inf"):
                self.check(value, pickle.dumps(value, 2))
        self.assertEqual(self.read_pickle(pickle.dumps(float("inf"))).stdout, "inf\n")
        loop = []
        loop.append(loop)
        self.assertIn("...", self.read_pickle(pickle.dumps(loop)).stdout)

    def test_old_protocols_are_refused_by_name(self):
        old = "pickle protocols 0 and 1 are not read: save it again with protocol 2 or later"
        for data in [pickle.dumps(value, protocol) for protocol in range(2)
                     for value in (None, True, 7, 1 << 40, 0.5, "text", [1], {"segments": []}, (1,))]:
            done = self.read_pickle(data)
            self.assertEqual(done.returncode, 3)
            self.assertRegex(done.stderr, f"^EBADMSG: .*: byte 0: opcode [A-Z0-9_]+: {old}", data)
        for data, place in ((b"\x80\x01N.", "byte 0: opcode PROTO"),
                            (b"\x80\x02I7\n.", "byte 2: opcode INT"),
                            (b"\x80\x02Kag0\n.", "byte 4: opcode GET")):
            self.assertIn(f"{place}: {old}", self.read_pickle(data).stderr)
        for protocol in range(2):
            data = pickle.dumps(snapshot(), protocol)
            self.refused(data, "EBADMSG", old)

    def test_what_acts_is_refused(self):
        class Sly:
            def __reduce__(self):
                return os.system, ("touch " + str(self.marker),)

        sly = Sly()
        sly.marker = self.folder / "executed"
        for protocol in range(2, 6):
            done = self.read_pickle(pickle.dumps({"segments": [sly]}, protocol))
            self.assertEqual(done.returncode, 3)
            self.assertRegex(done.stderr, "byte [0-9]+: opcode (STACK_)?GLOBAL")
            self.assertIn("nothing was executed", done.stderr)
        self.assertIn("posix system", self.read_pickle(pickle.dumps(sly, 2)).stderr)
        self.assertFalse((self.folder / "executed").exists())
        for data, name in ((b"\x80\x04]R.", "REDUCE"), (b"\x80\x04]}b.", "BUILD"),
                           (b"\x80\x02Pid\n.", "PERSID"), (b"\x80\x02K\x01Q.", "BINPERSID"),
                           (b"\x80\x02\x82\x05.", "EXT1"), (b"\x80\x02(ios\nsystem\n.", "INST"),
                           (b"\x80\x02)\x81.", "NEWOBJ"), (b"\x80\x04\x8f.", "EMPTY_SET"),
                           (b"\x80\x05\x97.", "NEXT_BUFFER"), (b"\x80\x02S'a'\n.", "STRING")):
            self.assertIn(f"opcode {name}", self.read_pickle(data).stderr)

    def test_damage(self):
        data = pickle.dumps({"segments": [1, 2.5, "text", (1 << 40)]}, 4)
        for cut in range(1, len(data)):
            done = self.read_pickle(data[:cut])
            self.assertEqual(done.returncode, 3)
            self.assertTrue(done.stderr.startswith("EBADMSG"), done.stderr)
        for data, words in ((b"\x80\x06N.", "a protocol later than 5"), (b"\xff.", "no opcode"),
                            (b"\x80\x02h\x05.", "nothing was put there"),
                            (b"\x80\x020.", "nothing is there"), (b"\x80\x02t.", "no mark is there"),
                            (b"\x80\x02}(K\x01u.", "a key without a value"),
                            (b"\x80\x02K\x01K\x02a.", "no list is there"),
                            (b"\x80\x02\x8a\x09" + b"\xff" * 8 + b"\x01.", "more than 64 bits"),
                            (b"\x80\x02N" + b"r\xff\xff\xff\x7f.", "its index cannot be"),
                            (b"\x80\x02X\xff\xff\xff\x7f.", "more than 16 MiB")):
            self.assertIn(words, self.read_pickle(data).stderr, data)
        # Each level costs a byte: neither recursion nor a mark for each.
        deep = b"\x80\x02" + b"]" * 200000 + b"a" * 199999 + b"."
        self.assertEqual(self.read_pickle(deep).returncode, 0)
        zipped = gzip.compress(pickle.dumps(list(range(100000))))
        self.assertIn("cut off", self.read_pickle(zipped[:-20]).stderr)


def frame(line, file="train.py", name="step"):
    return {"filename": file, "line": line, "name": name, "fx_node_op": "x"}


def entry(action, addr, size, us, frames=(), **more):
    return {"action": action, ("device_free" if action == "oom" else "addr"): addr, "size": size,
            "stream": 0, "time_us": us, "frames": list(frames), "compile_context": "N/A",
            "user_metadata": "", "pool_id": (0, 0), **more}


def block(address, size, state, requested=None, frames=()):
    one = {"address": address, "size": size, "state": state, "frames": list(frames)}
    if requested is not None:
        one["requested_size"] = requested
    return one


def segment(address, blocks, device=0, **more):
    total = sum(b["size"] for b in blocks)
    return {"device": device, "address": address, "total_size": total, "allocated_size": 0,
            "active_size": 0, "requested_size": 0, "stream": 0, "segment_type": "small",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
            "what_comes_later": {"a": 1}, **more}


BASE = 0x7F0000000000


def snapshot():
    """One of two devices: a ghost that is freed, one that stays, a block that another stream
    still uses, an expandable segment that is unmapped in part, an out of memory."""
    here = [frame(10), frame(99, "torch/nn/module.py", "forward"), frame(3, "x.cpp", "c10::alloc")]
    return {
        "segments": [
            segment(BASE, [block(BASE, 512, "active_allocated", 500, here),
                           block(BASE + 512, 1024, "active_allocated", 1000),
                           block(BASE + 1536, 512, "inactive", 0),
                           block(BASE + 2048, 4096, "active_awaiting_free", 4000)]),
            segment(BASE + (1 << 21), [block(BASE + (1 << 21), 1 << 20, "inactive", 0)],
                    is_expandable=True),
            segment(BASE, [block(BASE, 512, "active_allocated", 300)], device=1),
        ],
        "device_traces": [
            [entry("free_requested", BASE + 1536, 400, 1000),
             entry("free_completed", BASE + 1536, 400, 1000),
             entry("segment_map", BASE + (1 << 21), 4 << 20, 1001),
             entry("alloc", BASE + 512, 1000, 1002, here),
             entry("alloc", BASE + 2048, 4000, 1010, [frame(1, "a.cpp", "f")]),
             entry("free_requested", BASE + 2048, 4000, 1020),
             entry("segment_unmap", BASE + (3 << 20), 3 << 20, 1021),
             entry("oom", 1 << 20, 1 << 40, 1030, here),
             entry("snapshot", 0, 0, 1031), entry("of_tomorrow", 5, 5, 1031)],
            [entry("segment_alloc", BASE, 512, 1005), entry("alloc", BASE, 300, 1006)],
        ],
        "external_annotations": [
            {"stage": "START", "name": "Optimizer.step#SGD.step", "device": 0, "time_us": 1009},
            {"stage": "END", "name": "Optimizer.step#SGD.step", "device": 0, "time_us": 1015},
            {"stage": "START", "name": "evaluate", "device": 0, "time_us": 1016},
            {"stage": "START", "name": "evaluate", "device": 1, "time_us": 1016},
            {"stage": "END", "name": "evaluate", "device": 0, "time_us": 1017},
        ],
        "allocator_settings": {"expandable_segments": True, "roundup": [1, {}]},
        "allocator_config": None,
    }


class Snapshots(Case):
    def test_all_of_one(self):
        for protocol in range(2, 6):
            facts, events = self.imported(pickle.dumps(snapshot(), protocol))
            self.assertEqual(facts["allocations"], "imported")
            self.assertEqual(facts["imported from"], "snapshot of PyTorch's allocator")
            self.assertTrue(facts["start"].startswith("1000000 pid=0 ended=1"))
            short = [(e["kind"], e["device"], e["address"] - BASE if e["address"] > BASE - 1 else 0,
                      e["bytes"], e["phase"], e["what"]) for e in events]
            python = "train.py:10:step;torch/nn/module.py:99:forward"
            m = 1 << 20
            self.assertEqual(sorted(short[:5]), [
                ("free", 1, 1536, 400, 0, ""), ("present", 1, 0, 500, 0, python),
                ("present", 1, 1536, 400, 0, ""), ("segment", 1, 0, 6144, 0, ""),
                ("segment", 1, 2 * m, 4 * m, 0, "")])
            self.assertEqual(short[5:], [
                ("alloc", 1, 512, 1000, 0, python),
                ("segment", 2, 0, 512, 0, ""),
                ("alloc", 2, 0, 300, 0, ""),
                ("alloc", 1, 2048, 4000, 3, "a.cpp:1:f"),
                ("mark", 0, 0, 0, 0, "iteration"),
                ("mark", 0, 0, 2, 0, "evaluate"),
                ("segment_free", 1, 2 * m, 4 * m, 0, ""),
                ("segment", 1, 2 * m, m, 0, ""),
                ("failed", 1, 0, 1 << 40, 0, python),
                ("describe", 1, 2048, 3, 0, "? -"),
            ])
            times = {(e["kind"], e["address"]): e["ns"] for e in events}
            self.assertEqual(times["alloc", BASE + 512], 2001)
            self.assertEqual(times["alloc", BASE + 2048], 10001)
            # What is active in the end: the awaited one, too.
            self.assertEqual(live(events)[-1], 500 + 1000 + 4000 + 300)
            notes = [v for k, v in facts.items() if k.startswith("note")]
            self.assertTrue(any(n.startswith("2 blocks were allocated before") for n in notes), notes)
            self.assertTrue(any(n.startswith("1 entries say") for n in notes), notes)
            self.assertFalse(any("do not agree" in n for n in notes), notes)

    def test_random_histories_end_with_the_active_blocks(self):
        rng = random.Random(5)
        for _ in range(5):
            trace, blocks, awaited = [], {}, {}
            for i in range(300):
                blocks[BASE + 512 * i] = 512 * rng.randint(1, 9)
            before = dict(blocks)
            for us in range(3000):
                what = rng.random()
                if what < 0.5:
                    address = BASE + 512 * rng.randint(0, 4000)
                    if address not in blocks and address not in awaited:
                        blocks[address] = rng.randint(1, 4000)
                        trace.append(entry("alloc", address, blocks[address], us))
                elif what < 0.8 and blocks:
                    address = rng.choice(list(blocks))
                    awaited[address] = blocks.pop(address)
                    trace.append(entry("free_requested", address, awaited[address], us))
                elif awaited:
                    address = rng.choice(list(awaited))
                    trace.append(entry("free_completed", address, awaited.pop(address), us))
            end = [block(a, -(-n // 512) * 512, "active_allocated", n) for a, n in blocks.items()]
            end += [block(a, -(-n // 512) * 512, "active_pending_free", n) for a, n in awaited.items()]
            made = {"segments": [segment(BASE, end)], "device_traces": [trace]}
            facts, events = self.imported(pickle.dumps(made))
            totals = live(events)
            self.assertEqual(totals[-1], sum(blocks.values()) + sum(awaited.values()))
            self.assertGreaterEqual(min(totals), 0)
            first = next(i for i, e in enumerate(events) if e["kind"] not in ("present", "segment"))
            self.assertEqual(totals[first - 1], sum(before.values()))
            self.assertNotIn("do not agree", str(facts))

    def test_phases_from_stacks(self):
        """Two steps of a training: what the stacks tell gives the blocks' categories, with stacks of
        frees and without."""
        module = [frame(5, "x/torch/nn/modules/linear.py", "forward"), frame(9)]
        engine = [frame(0, "??", "torch::autograd::Engine::evaluate_function(x)"), frame(0, "??", "clone")]
        optimizer, other = [frame(7, "x/torch/optim/adam.py", "step"), frame(10)], [frame(11)]
        for with_frees in (True, False):
            trace, where = [], {}

            def alloc(address, size, frames):
                where[address] = frames, size
                trace.append(entry("alloc", address, size, len(trace), frames))

            def free(address, frames):
                made, size = where.pop(address)
                for action in ("free_requested", "free_completed"):
                    trace.append(entry(action, address, size, len(trace), frames if with_frees else made))

            for step in range(2):
                alloc(1000, 1, other)
                alloc(2000, 20, module)
                alloc(3000, 3, module)
                free(3000, module)
                alloc(4000, 40, engine)
                alloc(5000, 5, engine)
                free(2000, engine)
                free(5000, engine)
                if not step:
                    alloc(6000, 60, optimizer)
                alloc(7000, 7, optimizer)
                free(7000, optimizer)
                free(4000, optimizer)
                free(1000, other)
            facts, events = self.imported(pickle.dumps({"device_traces": [trace]}))
            made, got = {}, Counter()
            for e in events:
                if e["kind"] == "alloc":
                    made[e["address"]] = e["bytes"]
                elif e["kind"] == "describe":
                    got[made[e["address"]], e["bytes"]] += 1
            self.assertEqual(got, {(20, 5): 2, (3, 6): 2, (40, 2): 2, (5, 6): 2, (60, 3): 1, (7, 6): 2},
                             with_frees)
            self.assertEqual({e["phase"] for e in events if e["bytes"] == 40 and e["kind"] == "alloc"}, {2})
            self.assertIn("as far as stacks and annotations tell", str(facts))

    def test_phases_from_annotations(self):
        """A snapshot without stacks, whose program names its phases; modules' own lie within."""
        plan = [("## forward ##", [("alloc", 2000, 20), ("DistributedDataParallel.forward", []),
                                   ("alloc", 3000, 3), ("free", 3000, 3)]),
                ("## backward ##", [("alloc", 4000, 40), ("alloc", 5000, 5), ("free", 5000, 5),
                                    ("free", 2000, 20)]),
                ("forward_backward", []),
                ("## optimizer ##", [("alloc", 7000, 7), ("free", 7000, 7), ("free", 4000, 40)])]
        trace, annotations, now = [], [], 0
        for _ in range(2):
            for name, inside in plan:
                annotations.append({"stage": "START", "name": name, "device": 0, "time_us": (now := now + 1)})
                for step in inside:
                    if len(step) == 2:
                        for stage in ("START", "END"):
                            annotations.append({"stage": stage, "name": step[0], "device": 0,
                                                "time_us": (now := now + 1)})
                        continue
                    action = "free_completed" if step[0] == "free" else "alloc"
                    trace.append(entry(action, step[1], step[2], now := now + 1))
                annotations.append({"stage": "END", "name": name, "device": 0, "time_us": (now := now + 1)})
        facts, events = self.imported(pickle.dumps(
            {"device_traces": [trace], "external_annotations": annotations}))
        made, got = {}, Counter()
        for e in events:
            if e["kind"] == "alloc":
                made[e["address"]] = e["bytes"]
            elif e["kind"] == "describe":
                got[made[e["address"]], e["bytes"]] += 1
        self.assertEqual(got, {(20, 5): 2, (3, 6): 2, (40, 2): 2, (5, 6): 2, (7, 6): 2})

    def test_missing_and_odd(self):
        never = {"segments": [], "device_traces": [[], []], "external_annotations": []}
        self.refused(pickle.dumps(never), "ENODATA", "recording was never enabled")
        self.refused(pickle.dumps({"a": 1}), "EBADMSG", "no snapshot of PyTorch's allocator")
        only = {"segments": [segment(BASE, [block(BASE, 512, "active_allocated")])],
                "device_traces": [[]]}
        facts, events = self.imported(pickle.dumps(only))
        self.assertIn("recording was never enabled", facts["note import 1"])
        self.assertEqual([e["kind"] for e in events], ["segment", "present"])
        # The list of segments alone; blocks without addresses; no times.
        old = [segment(BASE, [{"size": 512, "state": "inactive"}, {"size": 1024, "state": "active_allocated"}])]
        facts, events = self.imported(pickle.dumps(old))
        self.assertEqual(events[1]["address"], BASE + 512)
        bare = {"device_traces": [[{"action": "alloc", "addr": 1, "size": 2}, {"action": "alloc", "addr": 5,
                                   "size": 3}, {"action": "free_completed", "addr": 1, "size": 2}]]}
        facts, events = self.imported(pickle.dumps(bare))
        self.assertEqual(live(events), [2, 5, 3])
        # Allocated after the trace ended; freed after it; both are told.
        late = {"segments": [segment(BASE, [block(BASE, 512, "active_allocated", 512)])],
                "device_traces": [[entry("alloc", BASE, 512, 1), entry("free_completed", BASE, 512, 2),
                                   entry("alloc", BASE + 512, 64, 3)]]}
        facts, events = self.imported(pickle.dumps(late))
        self.assertEqual([e["kind"] for e in events], ["segment", "alloc", "free", "alloc", "alloc"])
        self.assertIn("do not agree: 576 bytes", str(facts))
        many = {"device_traces": [[entry("alloc", BASE, 1, 1)]] * 18}
        facts, events = self.imported(pickle.dumps(many))
        self.assertEqual({e["device"] for e in events}, set(range(1, 17)))
        self.assertIn("More than 16 devices", str(facts))


class Kineto(Case):
    def moments(self, trace):
        found = [e for e in trace["traceEvents"] if e["name"] == "[memory]"]
        return sorted(found, key=lambda e: (e["ts"], e["args"]["Ev Idx"]))

    def check(self, path, data):
        trace = json.loads(gzip.decompress(data))
        facts, events = self.imported(path)
        moments = self.moments(trace)
        told = [(e, n) for e, n in zip(events, live(events)) if e["kind"] in ("alloc", "free")]
        self.assertEqual(len(told), len(moments))
        for (event, total), moment in zip(told, moments):
            self.assertEqual(event["address"], moment["args"]["Addr"])
            self.assertEqual(total, moment["args"]["Total Allocated"])
        self.assertNotIn("are missing", str(facts))
        return trace, facts, events

    def test_a_real_trace(self):
        path = ROOT / "tests/golden/memory/kineto_cpu.json.gz"
        trace, facts, events = self.check(path, path.read_bytes())
        self.assertEqual(facts["imported from"], "Kineto trace")
        kinds = Counter(e["kind"] for e in events)
        self.assertEqual(kinds["alloc"] + kinds["free"], 139)
        self.assertEqual(kinds["mark"], 3)
        allocs = [e for e in events if e["kind"] == "alloc"]
        self.assertEqual(allocs[0]["what"].split(";")[0], ":0:aten::empty")
        self.assertTrue(any("aten::addmm;:0:aten::linear" in e["what"] for e in allocs))
        backward = [e for e in allocs if "autograd::engine" in e["what"]]
        self.assertTrue(backward)
        self.assertEqual({e["phase"] for e in backward}, {2})
        # The weights' momentum is made in the first step.
        self.assertIn(3, {e["phase"] for e in allocs})
        # Linear(32, 64), ReLU, Linear(64, 8), SGD with momentum; three steps of 16 samples.
        made, found = {}, {}
        for e in events:
            if e["kind"] == "alloc":
                made[e["address"]] = e["bytes"]
            elif e["kind"] == "describe":
                found.setdefault(e["bytes"] & 0xFF, Counter())[made[e["address"]]] += 1
        weights = [32 * 64 * 4, 64 * 4, 64 * 8 * 4, 8 * 4]
        self.assertEqual(found[2], {n: 3 for n in weights})
        self.assertEqual(found[3], {n: 1 for n in weights})
        # What ReLU and the loss keep for the backward pass.
        self.assertEqual(found[5], {16 * 64 * 4: 3, 16 * 8 * 4: 3, 4: 3})
        first = min(m["ts"] for m in self.moments(trace))
        self.assertLess(abs(int(facts["start"].split()[0]) -
                            (trace["baseTimeNanoseconds"] + int(first * 1000))), 3)
        # The same of whole microseconds, of an array alone, and in a list of another order.
        random.Random(1).shuffle(trace["traceEvents"])
        again = self.imported(json.dumps(trace["traceEvents"], indent=1).encode())[1]
        self.assertEqual([e for e in again if e["kind"] != "mark"],
                         [e for e in events if e["kind"] != "mark"])

    def memory(self, us, address, size, total, device=(0, -1), **more):
        return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 8,
                "ts": us, "args": {"Total Reserved": 0, "Total Allocated": total, "Bytes": size,
                                   "Device Type": device[0], "Device Id": device[1], "Addr": address,
                                   "Ev Idx": us}, **more}

    def test_what_was_there_before(self):
        gpu = (1, 2)
        events = [self.memory(10, 100, 64, 1064, gpu), self.memory(20, 200, -300, 764, gpu),
                  self.memory(30, 100, -64, 700, gpu), self.memory(15, 100, 5, 5)]
        facts, got = self.imported(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 3},
                                               "deviceProperties": [{"id": 2, "totalGlobalMem": 1 << 34}]}).encode())
        self.assertEqual([(e["kind"], e["device"], e["address"], e["bytes"]) for e in got], [
            ("present", 3, 200, 300), ("present", 3, 1, 700), ("describe", 3, 1, 0),
            ("alloc", 3, 100, 64), ("alloc", 0, 100, 5), ("free", 3, 200, 300), ("free", 3, 100, 64)])
        self.assertEqual(facts["rank"], "3")
        self.assertEqual(facts["capacity bytes cuda:2"], str(1 << 34))
        self.assertEqual(live(got, 3)[-1], 700)
        events.append(self.memory(40, 101, 64, 9999, gpu))
        facts, got = self.imported(json.dumps({"traceEvents": events}).encode())
        self.assertIn("cuda:2: at 1 of 4 moments", str(facts))
        self.assertIn("9999 bytes against 764", str(facts))

    def test_stacks_steps_and_failures(self):
        def span(category, name, us, length, tid=8):
            return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid, "ts": us, "dur": length}

        events = [span("user_annotation", "ProfilerStep#5", 1, 50), span("python_function", "nn.Module: Net_0", 2, 20),
                  span("python_function", "my net.py(12): forward", 2, 20),
                  span("python_function", "<built-in method x of 0x7f>", 3, 15),
                  span("python_function", "nn.Module: Linear_1", 3, 15),
                  span("cpu_op", "aten::linear", 4, 10.5), span("cpu_op", "aten::addmm", 5, 5),
                  span("cpu_op", "aten::elsewhere", 1, 50, tid="other"),
                  span("user_annotation", "enumerate(DataLoader)#_Single", 28, 3), span("cpu_op", "aten::stack", 29, 1),
                  self.memory(6.5, 100, 64, 64), self.memory(29, 300, 8, 72), self.memory(40, 400, 8, 80),
                  {**self.memory(45, 0, 1 << 50, 80), "name": "[OutOfMemory]"}]
        facts, got = self.imported(json.dumps({"schemaVersion": 1, "x": {"[": ["]\\\""]},
                                               "traceEvents": events}).encode())
        self.assertEqual([(e["kind"], e["phase"], e["what"]) for e in got], [
            ("mark", 0, "iteration"),
            ("alloc", 1, ":0:aten::addmm;:0:aten::linear;my net.py:12:forward"),
            ("describe", 1, "Net_0.Linear_1 -"),
            ("alloc", 0, ":0:aten::stack"), ("describe", 0, "? -"), ("alloc", 0, ""), ("failed", 0, "")])
        self.assertEqual(got[4]["bytes"], 4)
        self.assertEqual(got[0]["bytes"], 5)

    def test_refused(self):
        self.refused(b'{"traceEvents": []}', "ENODATA", "profile_memory=True")
        self.refused(b'{"a": 1}', "EBADMSG", "no traceEvents")
        whole = json.dumps({"traceEvents": [self.memory(1, 2, 3, 3)] * 3}).encode()
        for cut in range(1, len(whole), 7):
            done = self.dump("import", self.write(whole[:cut]), self.folder / "record")
            self.assertEqual(done.returncode, 3)
        self.refused(whole[:-40], "EBADMSG", "byte ")
        self.refused(b'{"traceEvents": [{"a": ' + b"[" * 5000, "EFBIG", "nested too deeply")
        self.refused(whole.replace(b"}, {", b"} {"), "EBADMSG", "a comma is expected")

    def test_shared_traces_have_no_memory_events(self):
        traces = sorted((SHARED / "kineto").glob("*.json.gz"))
        if not traces:
            self.skipTest("no shared traces here")
        for path in traces:
            self.refused(path, "ENODATA", "no [memory] events")


class Timelines(Case):
    def test_rows(self):
        rows = [[-1, 1, 100, 0], [-1, 1, 50, 7], [1000, 2, 64, 3], [1000, 2, 64, 3], [1500, 3, -64, 3],
                [1500, 3, 64, 5], [2000, 4, -64, 5], [2000, 3, 0, 6], [2000, 3, 0, 7], [2500, 4, -64, 3],
                [2600, 4, -9, 1], [2700, 3, -50, 7], [2700, 3, 50, 1]]
        facts, events = self.imported(json.dumps(rows).encode())
        self.assertEqual([(e["ns"], e["kind"], e["address"] >> 12, e["bytes"]) for e in events], [
            (1, "present", 1, 100), (2, "describe", 1, 1), (3, "present", 2, 50),
            (4, "alloc", 3, 64), (5, "describe", 3, 6), (6, "alloc", 4, 64), (7, "describe", 4, 6),
            (501, "describe", 4, 2), (1001, "free", 4, 64), (1501, "free", 3, 64),
            (1701, "describe", 2, 3)])
        self.assertEqual(facts["start"].split()[0], "1000")
        self.assertIn("2 rows free or change what was never there", str(facts))

    def test_the_device(self):
        """CUDA's allocator gives multiples of 512 bytes; what was there before says nothing."""
        for rows, device, word in (
            ([[-1, 1, 100, 0], [10, 2, 512, 3], [20, 2, 1024, 3]], 1, "cuda:0"),
            ([[-1, 1, 512, 0], [10, 2, 512, 3], [20, 2, 1000, 3]], 0, "cpu"),
        ):
            facts, events = self.imported(json.dumps(rows).encode())
            self.assertEqual({e["device"] for e in events if e["kind"] != "mark"}, {device})
            self.assertIn(f"shown as {word}", str(facts))

    def test_refused(self):
        self.refused(b"[]", "ENODATA", "no rows")
        self.refused(b"[[0, 1, 2], [[0, 0], [0, 1], [0, 3]]]", "EBADMSG", ".raw.json.gz")
        self.refused(b"[[0, 9, 2, 3]]", "EBADMSG", "says what cannot be")
        self.refused(b"[[0, 2, 2, 3], [0, 2", "EBADMSG", "the file ends in the middle")
        self.refused(b"<!DOCTYPE html><html>", "EBADMSG", ".raw.json.gz")

    def test_a_real_one(self):
        path = SHARED / "kineto/memory_timeline.raw.gz"
        if not path.exists():
            self.skipTest("no shared timeline here")
        rows = json.loads(gzip.decompress(path.read_bytes()))
        facts, events = self.imported(path)
        kinds = Counter(e["kind"] for e in events)
        self.assertEqual((kinds["present"], kinds["alloc"], kinds["free"]), (645, 3345, 3345))
        self.assertNotIn("never there", str(facts))
        totals, want, total = live(events), [], 0
        for row in rows:
            total += row[2]
            if row[1] != 3:
                want.append(total)
        self.assertEqual([n for e, n in zip(events, totals) if e["kind"] != "describe"], want)
        self.assertEqual(max(want), 3082832104)
        self.assertEqual(totals[-1], 332060904)


class Others(Case):
    def test_refused(self):
        for data in (b"", b"dear reader", b"PK\3\4", b"{", b"\x1f\x8b", b"[1, 2]", struct.pack("<Q", 5)):
            done = self.dump("import", self.write(data), self.folder / "record")
            self.assertEqual(done.returncode, 3, data)
            self.assertTrue(done.stderr.startswith("EBADMSG"), done.stderr)
        self.refused(b"dear reader", "EBADMSG", "snapshot of PyTorch's allocator")
        self.refused(self.folder / "none", "ENOENT", "none")
        self.refused(self.folder, "EISDIR", "is a folder")
        letter = self.write(b"dear reader", "letter")
        done = self.dump("import", self.write(pickle.dumps(snapshot())), letter)
        self.assertIn("EEXIST", done.stderr)
        self.assertEqual(letter.read_bytes(), b"dear reader")
        self.imported(pickle.dumps(snapshot()))
        self.assertIn("a memory record already",
                      self.dump("import", self.folder / "record", self.folder / "other").stderr)


if __name__ == "__main__":
    unittest.main()
