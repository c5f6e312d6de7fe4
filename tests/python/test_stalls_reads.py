"""Loaders that name no files: the files that their samples read are detected, or reported as
unknown."""

import http.server
import os
import re
import sys
import threading
import urllib.request

import pytest

pytest.importorskip("torch")
from headrace.stalls import guard, reads
from stalls_scripts import measure

SIZE = 60_000
COUNT = 240


def on_storage(record):
    """Checks that cold segments, and only those, were read from storage."""
    cold = [one for one in record["segments"] if one["phase"] == "cold"]
    assert cold and all(one["verified"] for one in cold), (record["phases"], cold[:1])
    assert all(one["read_bytes"] > 0.5 * one["expected_bytes"] for one in cold)
    return cold


@pytest.fixture
def folder(tmp_path):
    """A folder on storage: files in a tmpfs are never fetched."""
    from headrace import _core

    probe = tmp_path / "probe"
    probe.write_bytes(bytes(100_000))
    state = _core.storage_drop([str(probe)])
    if state["in_memory"] or state["resident_bytes"] or state["network"]:
        pytest.skip("files of the temporary folder cannot be dropped from memory")
    return tmp_path


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_lmdb(folder, workers):
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(folder / "db"), map_size=64 << 20) as database:
        with database.begin(write=True) as transaction:
            for number in range(COUNT):
                transaction.put(b"%08d" % number, os.urandom(SIZE))
    record = measure(
        folder,
        f"""
        import lmdb
        class Database(Dataset):
            def __init__(self):
                self.db = lmdb.open({str(folder / "db")!r}, readonly=True, lock=False)
            def __len__(self):
                return {COUNT}
            def __getitem__(self, index):
                with self.db.begin() as transaction:
                    value = transaction.get(b"%08d" % index)
                return torch.full((8,), float(sum(value[::4096]))), 0
        loader = DataLoader(Database(), batch_size=4, shuffle=True, num_workers={workers})
        while True:
            for x, y in loader:
                training.step(x, y, 0.004)
        """,
        fresh=workers > 0,
        time_s=3.0,
    ).record
    on_storage(record)
    assert record["dataset"]["bytes"] == os.path.getsize(folder / "db" / "data.mdb")


@pytest.mark.long
def test_hugging_face_datasets(folder):
    datasets = pytest.importorskip("datasets")
    rows = {"x": [os.urandom(SIZE) for _ in range(COUNT)], "y": list(range(COUNT))}
    datasets.Dataset.from_dict(rows).save_to_disk(str(folder / "rows"))
    record = measure(
        folder,
        f"""
        import datasets
        rows = datasets.load_from_disk({str(folder / "rows")!r})
        def collate(samples):
            return torch.stack([torch.full((8,), float(len(s["x"]))) for s in samples]), torch.zeros(
                len(samples), dtype=torch.long)
        loader = DataLoader(rows, batch_size=4, shuffle=True, num_workers=1, collate_fn=collate)
        while True:
            for x, y in loader:
                training.step(x, y, 0.004)
        """,
        fresh=True,
        time_s=3.0,
    ).record
    on_storage(record)


# Reads like OpenCV and torchvision.io: without an open() that Python sees.
UNDERNEATH = """
import ctypes
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fread.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
class Underneath(Dataset):
    def __len__(self):
        return 240
    def __getitem__(self, index):
        file = libc.fopen(b"%s/%03d" % (os.fsencode(where), index), b"rb")
        buffer = ctypes.create_string_buffer(60_000)
        assert libc.fread(buffer, 1, 60_000, file) == 60_000
        libc.fclose(file)
        return torch.full((8,), float(index)), 0
"""


@pytest.mark.parametrize(("workers", "size"), [pytest.param(0, SIZE, marks=pytest.mark.long), (1, SIZE), (1, 2000)])
def test_files_that_are_opened_underneath_python(folder, workers, size):
    (folder / "files").mkdir()
    for number in range(COUNT):
        (folder / "files" / f"{number:03}").write_bytes(bytes(size))
    body = f"""
loader = DataLoader(Underneath(), batch_size=4, num_workers={workers})
while True:
    for x, y in loader:
        training.step(x, y)
"""
    where = f"where = {str(folder / 'files')!r}\n"
    script = where + UNDERNEATH.replace("60_000", str(size)) + body
    record = measure(folder, script).record
    reason = record["phases"]["cold"]
    amount = r"0\.0[56]\d?" if size == SIZE else r"0\.00[1-9]\d?"
    assert re.search(rf"a sample reads {amount} MB \(opened underneath Python", reason)
    assert record["dataset"]["reads_files"]


def test_data_in_memory(tmp_path):
    record = measure(
        tmp_path,
        """
        loader = DataLoader(Slow(), batch_size=4, num_workers=1)
        while True:
            for x, y in loader:
                training.step(x, y)
        """,
    ).record
    assert record["dataset"]["reads_files"] is False
    assert "read no files" in record["phases"]["cold"] and "warm" not in record["phases"]
    warm = [one for one in record["segments"] if one["phase"] == "warm"]
    assert warm and all(one["verified"] for one in warm)


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(SIZE))
        self.end_headers()
        self.wfile.write(bytes(SIZE))

    def log_message(self, *words):
        pass


@pytest.fixture
def port():
    """The port of a server on this machine that answers each request with SIZE bytes."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


# A connection for each sample, and one that lives as long as its worker.
EACH_ITS_OWN = """
        import urllib.request
        def get(index):
            with urllib.request.urlopen("http://127.0.0.1:%d/%d" % (port, index)) as answer:
                return answer.read()
"""
ONE_FOR_ALL = """
        import http.client
        kept = []
        def get(index):
            if not kept:
                kept.append(http.client.HTTPConnection("127.0.0.1", port))
            kept[0].request("GET", "/%d" % index)
            return kept[0].getresponse().read()
"""


@pytest.mark.parametrize("get", [EACH_ITS_OWN, pytest.param(ONE_FOR_ALL, marks=pytest.mark.long)])
def test_data_over_the_network(tmp_path, port, get):
    record = measure(
        tmp_path,
        f"""
        port = {port}
        {get}
        class Remote(Slow):
            def __getitem__(self, index):
                return torch.full((8,), float(len(get(index)))), 0
        loader = DataLoader(Remote(), batch_size=4, num_workers=1)
        while True:
            for x, y in loader:
                training.step(x, y)
        """,
    ).record
    assert record["dataset"]["network"] and "over the network" in record["phases"]["cold"]
    assert "perhaps" not in record["phases"]["cold"]
    warm = [one for one in record["segments"] if one["phase"] == "warm"]
    assert all(one["network_bytes"] > SIZE * one["samples"] / 2 for one in warm)


@pytest.mark.parametrize("guarded", [True, False])
def test_traffic_of_others(tmp_path, port, guarded):
    """Samples in memory do not count as remote because another process receives data meanwhile. The
    guard counts connections, so this is known; without it they count as perhaps remote."""
    command: tuple[str, ...] = ()
    if guarded:
        (tmp_path / "run").mkdir()
        variables: dict[str, str] = {}
        guard.Guard(str(tmp_path / "run")).add_to(variables)
        command = ("env", *(f"{name}={value}" for name, value in variables.items()), sys.executable)
    stop = threading.Event()

    def receive():
        while not (tmp_path / "begun").exists():  # the script imports torch first
            if stop.wait(0.01):
                return
        while not stop.is_set():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                answer.read()

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        record = measure(
            tmp_path,
            """
            open("begun", "w").close()
            loader = DataLoader(Slow(), batch_size=4, num_workers=1)
            while True:
                for x, y in loader:
                    training.step(x, y)
            """,
            command=command,
        ).record
    finally:
        stop.set()
        thread.join()
    assert record["dataset"]["network"] is False
    expected = "the samples read no files" if guarded else "the samples perhaps come over the network"
    assert expected in record["phases"]["cold"]
    assert record["dataset"]["reads_files"] is not guarded


def test_traffic_of_others_that_ends(tmp_path, port, monkeypatch):
    """Samples are loaded again until a moment without traffic shows that it was not theirs."""
    monkeypatch.setattr(reads, "AGAIN_AFTER_S", (0.0, 0.0, 0.0))
    monkeypatch.setenv("HEADRACE_STALLS_DIR", str(tmp_path))

    def loaded_with(traffic):
        """Runs until the samples' reads are known; during the first ``traffic`` loads, the machine
        receives data."""
        runs = []

        def run():
            runs.append(len(runs))
            if len(runs) <= traffic:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                    answer.read()
            return 1

        learned = reads.Learned()
        assert learned.of(run, lambda files: None) == [] and not learned.network
        return len(runs), learned.network_bytes >= SIZE

    assert loaded_with(traffic=4) == (4, True)
    # The machine's other processes may use the network, too.
    runs, perhaps = loaded_with(traffic=1)
    assert runs == 4 if perhaps else runs > 1


def test_batches_that_a_dataset_makes(tmp_path):
    """Samples are counted, not items of the dataset."""
    record = measure(
        tmp_path,
        """
        class Batches(IterableDataset):
            def __iter__(self):
                for number in range(64):
                    time.sleep(0.004)
                    yield torch.full((16, 8), float(number)), torch.zeros(16, dtype=torch.long)
        loader = DataLoader(Batches(), batch_size=None, num_workers=1)
        while True:
            for x, y in loader:
                training.step(x, y)
        """,
    ).record
    assert record["preparation"]
    assert all(row["samples"] == 16 for row in record["preparation"])


@pytest.mark.long
def test_webdataset(folder):
    webdataset = pytest.importorskip("webdataset")
    with webdataset.ShardWriter(str(folder / "%03d.tar"), maxcount=80) as writer:
        for number in range(COUNT):
            writer.write({"__key__": f"{number:05}", "bin": bytes(2000), "cls": number % 3})
    record = measure(
        folder,
        f"""
        import webdataset
        data = webdataset.WebDataset({str(folder / "{000..002}.tar")!r}, shardshuffle=False)
        def sample(one):
            time.sleep(0.0005)
            return torch.full((8,), float(len(one["bin"]))), int(one["cls"])
        data = data.map(sample).batched(8)
        loader = DataLoader(data, batch_size=None, num_workers=1)
        while True:
            for x, y in loader:
                training.step(x, torch.as_tensor(y))
        """,
        fresh=True,
    ).record
    assert record["preparation"]
    assert all(row["samples"] == 8 for row in record["preparation"])
