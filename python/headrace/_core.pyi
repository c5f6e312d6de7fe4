"""The C extension. Private: the package's own modules are its only users."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Final, Literal, TypedDict, final

from typing_extensions import Buffer, Unpack

version: str

def drain_log() -> None: ...
def agent_socket() -> str: ...
def agent_status(socket: _Path | None, /) -> str: ...
def metrics_text() -> str: ...
def produced(
    count: int, sample_bytes: int, name: str, layout: Buffer, digest: Buffer
) -> tuple[Dataset, Recipe]: ...
def cache_run(world_size: int, /) -> str: ...
def cache_bytes(text: str, /) -> int: ...
def cache_kind(text: str, /) -> Literal["private", "kept", "hosts", "disk"]: ...

class _Machine(TypedDict):
    cores: int
    nodes: int
    memory_bytes: int
    page_cache_bytes: int
    processor: str
    page_generations: bool

def machine() -> _Machine: ...

_Form = Literal["encoded", "coefficients", "planes", "indexed", "waveform", "waveform16"]

forms: tuple[_Form, ...]

def order(samples: int, shuffle: bool, seed: int, epoch: int, /) -> bytes: ...
def order_replacement(
    samples: int, seed: int, epoch: int, position: int, attempt: int, /
) -> int: ...
def form_of(data: Buffer, /) -> _Form: ...
def is_sound(data: Buffer, /) -> bool: ...

_Path = str | bytes | PathLike[str] | PathLike[bytes]

class _PackInfo(TypedDict):
    samples: int
    source_bytes: int
    bytes: int
    continued: int
    bad_count: int
    rows_bytes: int
    samples_of_form: list[int]
    bytes_of_form: list[int]
    samples_kept: list[int]
    mono: bool
    rate: int
    masks: int

class _PackResult(_PackInfo):
    notices: list[tuple[int, str, str, int]]

def pack_write(
    dataset: Dataset,
    path: _Path,
    *,
    form: int = 1,
    threads: int = 0,
    trust: bool = False,
    max_growth: float = 0.0,
    restart: bool = False,
    overwrite: bool = False,
    skip: bool = False,
    progress: Callable[[int, int], object] | None = None,
    mono: bool = False,
    rate: int = 0,
    staging: str | None = None,
    part_bytes: int = 0,
) -> _PackResult: ...
def pack_unpack(
    path: _Path,
    directory: _Path,
    *,
    threads: int = 0,
    overwrite: bool = False,
    skip: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> _PackResult: ...
def pack_inspect(path: _Path) -> _PackInfo: ...

class _Residency(TypedDict):
    files: int
    bytes: int
    resident_bytes: int
    dirty_bytes: int
    failed: int
    unknown: int
    problem: str
    filesystem: str
    in_memory: bool
    network: bool

class _StorageRate(TypedDict):
    reads: int
    bytes: int
    elapsed_s: float
    bytes_per_s: float
    reads_per_s: float
    exhausted: bool
    failed: int
    parts: list[float]
    steady_bytes_per_s: float

def storage_check(paths: Iterable[_Path], /) -> _Residency: ...
def storage_drop(paths: Iterable[_Path], /) -> _Residency: ...
def storage_preread(paths: Iterable[_Path], /) -> _Residency: ...
def storage_measure(paths: Iterable[_Path], depth: int, seconds: float) -> _StorageRate: ...
def storage_measure_samples(
    dataset: Dataset, indices: Buffer, depth: int, seconds: float
) -> _StorageRate: ...

@final
class StorageHold:
    """Reads files into memory and keeps them there until :meth:`close` or the end of a ``with``
    block: at most ``most_bytes`` bytes, and as far as the system allows."""

    def __new__(cls, paths: Iterable[_Path], most_bytes: int) -> StorageHold: ...
    bytes: Final[int]
    held_bytes: Final[int]
    locked_bytes: Final[int]
    problem: Final[str]
    def close(self) -> None: ...
    def __enter__(self) -> StorageHold: ...
    def __exit__(self, *exception: object) -> None: ...

class Meter:
    """The status of a loader in Python, for headrace top and Prometheus. It is shown until
    :meth:`end`, or until the Meter is freed. See docs/metrics.md for ``metrics`` and the keys of a
    status."""

    def __new__(cls, metrics: str | None, rank: int, local_world_size: int) -> Meter: ...
    number: Final[int]
    @classmethod
    def check(cls, metrics: str, /) -> None: ...
    def publish(self, status: str, /) -> None: ...
    def end(self) -> None: ...

class Replay:
    """Traces of PyTorch's profiler; see :mod:`headrace.replay`."""

    def __new__(
        cls,
        paths: Sequence[_Path],
        window: str | None = None,
        instance: int = -1,
        limit: float = 0.05,
    ) -> Replay: ...
    def summary(self) -> dict[str, Any]: ...
    def report(self, what_ifs: Sequence[str], columns: int, /) -> str: ...
    def write_page(self, what_ifs: Sequence[str], path: _Path, /) -> None: ...

class Scenario:
    """A copy of a Replay's graph to change; see :mod:`headrace.replay`."""

    def __new__(cls, replay: Replay) -> Scenario: ...
    def select(
        self,
        name: str | None,
        within: str | None,
        kinds: int,
        phases: int,
        stream: int,
        rank: int,
        /,
    ) -> list[int]: ...
    def task(self, task: int, /) -> dict[str, Any]: ...
    def scale(self, tasks: Sequence[int], factor: float, /) -> None: ...
    def remove(self, tasks: Sequence[int], /) -> None: ...
    def insert(
        self,
        length_ns: int,
        after: Sequence[int],
        before: Sequence[int],
        channel: str | None,
        priority: int,
        /,
    ) -> int: ...
    def reschedule(self, lane: int, tasks: Sequence[int], priorities: Sequence[int], /) -> None: ...
    def apply(self, what_if: str, /) -> None: ...
    def predict(self) -> dict[str, Any]: ...
    def write_trace(self, path: _Path, /) -> None: ...

class MemoryRecorder:
    """Records allocations, frees and uses of memory blocks; see :mod:`headrace.memory`."""

    def __new__(cls, path: _Path, limit_bytes: int = 0) -> MemoryRecorder: ...
    phase: int
    part: int
    history_reports: bool
    awaits_update: bool
    was_updated: Final[bool]
    calls: Final[int]
    without_storage: Final[int]
    is_open: Final[bool]
    def prepare(
        self,
        describe: Callable[[Any], bytes],
        failed: Callable[[Any, bool], object],
        address_of: Callable[[Any], int],
        tensor_type: type,
    ) -> None: ...
    def with_stacks(
        self,
        classify: Callable[[Any], tuple[int, int] | None],
        sequence_of: Callable[[], int],
        current_node: Callable[[], Any],
        /,
    ) -> None: ...
    def observe(self, path: _Path, /) -> str | None: ...
    def tap(self) -> bool: ...
    def follow_kernels(self) -> str | None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...
    def name(self, text: str, /) -> int: ...
    def stack(self, frames: Iterable[tuple[str, str, int]], /) -> int: ...
    def fact(self, name: str, value: str, /) -> None: ...
    def mark(self, name_id: int, number: int, /) -> None: ...
    def events(self, buffer: bytes | bytearray | memoryview, /) -> None: ...
    def refused(self, bytes: int, /) -> None: ...
    def describe(self, tensor: Any, category: int, like: Any = None, part: int = 0, /) -> None: ...
    def part_of(self, tensor: Any, /) -> int: ...
    def present(self, tensor: Any, /) -> None: ...
    def moved(self, storage: Any, /) -> None: ...
    def now_ns(self) -> int: ...
    def phase_changes(self) -> list[tuple[int, int]]: ...
    def counts(self) -> tuple[int, int]: ...

def memory_analyse(path: _Path, h2d_bytes_per_s: float, d2h_bytes_per_s: float, /) -> str: ...
def memory_write_text(
    paths: Sequence[_Path],
    out: _Path,
    columns: int,
    h2d_bytes_per_s: float,
    d2h_bytes_per_s: float,
    /,
) -> None: ...
def memory_write_page(
    paths: Sequence[_Path], out: _Path, h2d_bytes_per_s: float, d2h_bytes_per_s: float, /
) -> None: ...
def memory_compare(before_and_after: Sequence[_Path], /) -> str: ...
def memory_import(from_path: _Path, to: _Path, /) -> None: ...
def plan(
    text: bytes,
    page: _Path | None,
    trace: _Path | None,
    *,
    gpus: int = 0,
    gpus_per_server: int = 0,
    batch: int = 0,
    memory_bytes: int = 0,
    link_bytes_per_s: float = 0.0,
    network_bytes_per_s: float = 0.0,
    state_ratio: float = 2.0,
    gradient_ratio: float = 1.0,
    rows: int = 10,
    schedule: int = -1,
    stages: int = -1,
    replicas: int = -1,
    microbatch: int = -1,
    recompute: int = -1,
    chunks: int = -1,
) -> str: ...

@final
class Array:
    """A C-contiguous array in host memory, for DLPack and the buffer protocol."""

    shape: Final[tuple[int, ...]]
    dtype: Final[
        Literal[
            "uint8", "float16", "bfloat16", "float32", "int64", "int32", "float64", "bool"
        ]
    ]
    nbytes: Final[int]
    def __len__(self) -> int: ...
    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Batch:
    images: Final[Array]
    views: Final[list[Array]]
    labels: Final[Array]
    indices: Final[Array]
    count: Final[int]
    epoch: Final[int]
    number: Final[int]
    padding: Final[int]
    replaced: Final[int]
    masks: Final[Array | None]
    extents: Final[Any]  # an Array of int64, or None: samples fill their places
    rows: Final[tuple[dict[str, Array], list[str], Array | None] | None]
    mix: Final[float]
    def __len__(self) -> int: ...

class _Info(TypedDict):
    from_index: bool
    directories: int
    memory_bytes: int
    index_path: str

class _Opening(TypedDict, total=False):
    index: int
    threads: int
    wait_sizes: bool
    allow_empty: bool
    label: str | None
    sounds: bool

@final
class Dataset:
    @classmethod
    def open_folder(cls, path: _Path, **options: Unpack[_Opening]) -> Dataset: ...
    @classmethod
    def open_list(cls, path: _Path, **options: Unpack[_Opening]) -> Dataset: ...
    @classmethod
    def open_pack(cls, path: _Path, **options: Unpack[_Opening]) -> Dataset: ...
    @classmethod
    def open_tar(cls, path: _Path, **options: Unpack[_Opening]) -> Dataset: ...
    @classmethod
    def open_parquet(
        cls, paths: Iterable[_Path], *, label: str | None = None, image: str | None = None
    ) -> Dataset: ...
    @classmethod
    def open_coco(
        cls,
        images: _Path,
        annotations: _Path,
        *,
        contiguous_labels: bool = False,
        keypoints: bool = False,
        skip_crowds: bool = False,
        skip_empty: bool = False,
    ) -> Dataset: ...
    @classmethod
    def open(cls, path: _Path, **options: Unpack[_Opening]) -> Dataset: ...
    @classmethod
    def from_paths(cls, paths: Iterable[_Path], labels: Buffer) -> Dataset: ...
    @classmethod
    def from_ranges(cls, paths: Iterable[_Path], ranges: Buffer) -> Dataset: ...
    def subset(self, indices: Buffer) -> Dataset: ...
    def with_rows(
        self,
        columns: list[tuple[str, str, str, tuple[int, ...], Buffer]],
        offsets: Buffer,
        /,
    ) -> Dataset: ...
    def with_masks(self, masks: Dataset, /) -> Dataset: ...
    masks: Final[Dataset | None]
    def columns(self) -> list[tuple[str, str, str, tuple[int, ...]]]: ...
    def rows(self, index: int) -> dict[str, Array]: ...
    def table(
        self,
    ) -> tuple[list[tuple[str, str, str, tuple[int, ...], bytes]], bytes] | None: ...
    def path(self, index: int) -> str: ...
    def key(self, index: int) -> str: ...
    def read(self, index: int) -> bytes: ...
    def label(self, index: int) -> int: ...
    def labels(self) -> Array: ...
    def names_digest(self) -> str: ...
    def classes(self) -> list[str]: ...
    def sample_bytes(self, index: int) -> int | None: ...
    def wait_sizes(self) -> None: ...
    def info(self) -> _Info: ...
    def verify(self, *, threads: int = 0) -> list[tuple[int, str, str]]: ...
    root: Final[str]
    def __len__(self) -> int: ...

@final
class Recipe:
    def __new__(
        cls,
        operations: list[tuple[str, dict[str, Any]]],
        *,
        layout: int = 0,
        apply_exif_orientation: bool = False,
        max_pixels: int = 178956970,
        damaged: int = 0,
        exact: bool = True,
        max_source_bytes: int = 67108864,
        padded: bool = False,
        max_height: int = 0,
        max_width: int = 0,
    ) -> Recipe: ...
    @classmethod
    def of_views(cls, recipes: tuple[Recipe, ...], /) -> Recipe: ...
    views: Final[int]
    shape: Final[tuple[int, ...]]
    dtype: Final[Literal["uint8", "float16", "bfloat16", "float32"]]
    nbytes: Final[int]
    sound_head: Final[tuple[bool, int] | None]

class _ImageInfo(TypedDict):
    format: Literal[
        "jpeg", "png", "webp", "bmp", "gif", "ppm", "coefficients", "planes", "indexed"
    ]
    width: int
    height: int
    channels: int
    orientation: int

class _SoundInfo(TypedDict):
    format: Literal["WAV", "FLAC", "MP3", "Vorbis"]
    rate: int
    channels: int
    frames: int

@final
class Preparer:
    def __new__(cls) -> Preparer: ...
    def info(self, data: Buffer) -> _ImageInfo: ...
    def decode(self, data: Buffer, region: Sequence[int] | None = None) -> Array: ...
    def run(
        self,
        recipe: Recipe,
        data: Buffer,
        seed: int = 0,
        epoch: int = 0,
        index: int = 0,
        dataset: Dataset = ...,
        mask: Buffer | None = None,
    ) -> Any: ...  # an Array, or a tuple of them; with a dataset: that, and a dict of Arrays
    def sound_info(self, data: Buffer, /) -> _SoundInfo: ...
    def waveform(
        self, data: Buffer, form: int = 4, mono: bool = False, rate: int = 0
    ) -> bytes: ...
    def sound_decode(self, data: Buffer, first: int, count: int, channels: int, /) -> Array: ...
    damage: Final[str | None]
    extents: Final[tuple[int, ...]]
    scale: Final[Literal[1, 2, 4, 8]]

@final
class Converter:
    """Converts images to items and back, one thread at a time."""

    def __new__(
        cls, *, trust: bool = False, max_growth: float = 0.0, max_pixels: int = 178956970
    ) -> Converter: ...
    def convert(self, data: Buffer, form: _Form = "coefficients") -> bytes: ...
    def restore(self, item: Buffer, /) -> bytes: ...
    def estimate(self, data: Buffer, form: _Form = "coefficients") -> int | None: ...

@final
class Loader:
    def __new__(
        cls,
        dataset: Dataset,
        recipe: Recipe,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        threads: int = 0,
        local_world_size: int = 1,
        batches_ahead: int = 0,
        staging_bytes: int = 0,
        direct_io: bool = False,
        no_io_uring: bool = False,
        on_error: Literal["raise", "skip"] = "raise",
        max_bad_share: float = 0.01,
        external_order: bool = False,
        pinned: bool = False,
        cache: str | None = None,
        cache_form: Literal["auto"] | _Form = "auto",
        epochs: int = 0,
        agent: _Path = ...,
        stream: str | None = None,
        join: Literal["epoch", "now"] = "epoch",
        lag: Literal["alone", "wait"] = "alone",
        window: int = 8,
        agent_command: _Path = ...,
        assignment: Literal["auto", "local", "exact"] = "auto",
        mixup_alpha: float = 0.0,
        cutmix_alpha: float = 0.0,
        mix_share: float = 1.0,
        cutmix_share: float = 0.5,
        metrics: str | None = None,
        metrics_rank: int = -1,
        cache_evicts: bool = False,
        cache_of: Loader | None = None,
    ) -> Loader: ...
    batches: Final[int]
    def start_epoch(self, epoch: int, /) -> None: ...
    def next(self) -> Batch | None: ...
    def set_watcher(self, watcher: Callable[[], object], /) -> None: ...
    def push(self, indices: Buffer, /) -> None: ...
    def push_end(self) -> None: ...
    def expect(self, indices: Buffer, of_this_epoch: int, /) -> None: ...
    def get_state(self) -> dict[str, int]: ...
    def restore(
        self,
        *,
        version: int,
        shuffle: int,
        seed: int,
        epoch: int,
        position: int,
        samples: int,
    ) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def skipped(self) -> list[tuple[int, int, str, str]]: ...
    def damaged(self) -> list[tuple[int, int, str, str]]: ...
    def hosts(self) -> list[dict[str, Any]]: ...
    def rates(self) -> dict[str, Any]: ...
    def set_rates(
        self,
        epoch: int,
        ranks: Sequence[tuple[int, float, float, float, float, float, float]],
        /,
    ) -> None: ...
    def set_hosts(self, epoch: int, cache: str, /) -> None: ...
    def close(self) -> None: ...

@final
class CacheValue:
    """A cached value: a read-only buffer over the cache's memory."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def is_whole(self) -> bool: ...

@final
class Cache:
    def __new__(
        cls, spec: str, identity: str, *, run: str | None = None, items: int = 0
    ) -> Cache: ...
    def get(self, key: Buffer, wait_ms: int = 0, /) -> CacheValue | None: ...
    def put(self, key: Buffer, pieces: Sequence[Buffer], /) -> bool: ...
    def give_up(self, key: Buffer, /) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def close(self) -> None: ...

@final
class Producer:
    def __new__(cls, agent: _Path, dataset: Dataset, memory: int) -> Producer: ...
    def take(self, most: int, stop: int, /) -> list[tuple[int, int, int, int]]: ...
    def done(self, slot: int, label: int, /) -> None: ...
    def failed(self, slot: int, reason: str, /) -> None: ...
    def close(self) -> None: ...

@final
class Agent:
    def __new__(
        cls,
        *,
        socket: _Path | None = None,
        listener: int = -1,
        threads: int = 0,
        cache: str | None = None,
        idle_ms: int = -1,
        metrics: str | None = None,
    ) -> Agent: ...
    def run(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...

class _Load(TypedDict):
    at_s: float
    cores: int
    busy_s: float | None
    steal_s: float | None
    run_s: float
    run_delay_s: float | None
    throttled_s: float | None

class _Verdict(TypedDict):
    verified: bool | None
    reason: str
    others: float | None
    disturbed: bool

stalls_phases: dict[_Phase, str]

class _Lengths(TypedDict):
    batches: int
    settle: int

def stalls_lengths(
    phases: Sequence[str],
    *,
    step_s: float,
    load_s: float,
    ahead: int,
    unit: int,
    epoch_batches: int,
    max_s: float,
    max_batches: int,
) -> _Lengths: ...
def stalls_load(root: int, /) -> _Load: ...
def stalls_judge(evidence: dict[str, Any], /) -> _Verdict: ...
def stalls_notes(segments: list[dict[str, Any]], unheld: str, /) -> list[str]: ...
def stalls_pauses(
    wait_s: Sequence[float], batch_s: Sequence[float], step_s: float, /
) -> list[float]: ...

_Phase = Literal["device", "host", "warm", "cold", "alone"]

class _Segment(TypedDict):
    phase: _Phase
    round: int
    set: int
    rank: int
    preread: bool
    settle: int
    batches: int
    full: bool

@final
class StallsSchedule:
    """Chooses the next segment of a measuring run."""

    def __new__(
        cls,
        phases: Iterable[str],
        *,
        ranks: int = 1,
        batches: int = 20,
        settle: int = 2,
        max_batches: int = 0,
        max_s: float = 150.0,
        precision: float = 0.02,
    ) -> StallsSchedule: ...
    def next(self) -> _Segment | None: ...
    def report(self, timed_s: float, all_s: float, /) -> None: ...
    def again(
        self, evidence: dict[str, Any], /
    ) -> Literal["", "disturbed", "unsettled", "none settled"]: ...
    def drop(self, phase: str, /) -> None: ...
    progress: Final[float]
    end: Final[Literal["", "precise", "limit"]]

_Interval = tuple[float, float, float]

class _StallsShares(TypedDict, total=False):
    compute: _Interval
    copy: _Interval
    preparation: _Interval
    fetch: _Interval

class _StallsSummary(TypedDict):
    ranks: int
    cores: int
    samples: int
    bytes: int
    measured: dict[_Phase, bool]
    rate: dict[_Phase, _Interval]
    device_rate: _Interval
    prepare_rate: _Interval
    fetch_rate: _Interval
    share: _StallsShares
    warm_share: _StallsShares
    contradicts: bool

class _StallsPrediction(TypedDict):
    rate: float
    low: float
    high: float
    share: dict[Literal["compute", "copy", "preparation", "fetch"], float]
    reference_rate: float
    device_rate: float
    prepare_rate: float
    fetch_rate: float
    core_share: float
    extrapolated: bool
    why: str

class _StallsSuggestion(TypedDict):
    text: str
    change: dict[str, Any]
    prediction: _StallsPrediction

@final
class Stalls:
    """The result of a measuring run, made by analyse, read or merge."""

    @classmethod
    def analyse(cls, records: Iterable[str | bytes], /) -> Stalls: ...
    @classmethod
    def read(cls, path: _Path, /) -> Stalls: ...
    @classmethod
    def merge(cls, results: Iterable[Stalls], /) -> Stalls: ...
    sentence: Final[str]
    def summary(self) -> _StallsSummary: ...
    def write(self, path: _Path, /) -> None: ...
    def write_text(self, path: _Path, columns: int = 80) -> None: ...
    def write_page(self, path: _Path, /) -> None: ...
    def write_trace(self, path: _Path, /) -> None: ...
    def predict(
        self,
        *,
        cache_share: float = -1.0,
        cache_bytes: int = 0,
        page_cache: bool = False,
        cores: int = 0,
        storage_bytes_per_s: float = 0.0,
        storage_factor: float = 0.0,
        device_speedup: float = 0.0,
        ranks: int = 0,
        workers: int = 0,
        loader: Literal["same", "headrace"] = "same",
        form: Literal["auto"] | _Form = "auto",
    ) -> _StallsPrediction: ...
    def suggest(self, stall: float = 0.02, capacity: int = 8) -> list[_StallsSuggestion]: ...
