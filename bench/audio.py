"""make bench-audio: windows of sounds on one core, against torchcodec with torchaudio, soundfile,
librosa and DALI.

24 clips of 30 s of real music, in memory, as MP3, FLAC, Vorbis and WAV: a random window of 5 s,
mono, 16 kHz, Whisper's log-mel features; and 8 kHz without features, M5's input. Every worker runs
in its own process on the same core; passes alternate, and their CPU time counts. The M5 part runs
both DataLoaders on all cores, by the clock.
"""

import glob
import os
import statistics
import subprocess
import sys
import tempfile

import harness
from harness import Missing, log

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
WAVEFORM_ROUNDS = "20"  # over the clips in a pass of items, which take microseconds
VENV = os.path.join(os.environ.get("VENV") or os.path.join(ROOT, ".venv"), "bin", "python")
PEERS = os.path.join(os.environ.get("BENCH_VENV") or os.path.join(ROOT, ".venv-bench"), "bin",
                     "python")
FORMATS = ("mp3", "flac", "ogg", "wav")


def start(parts, name, listing, *options, cpus=None):
    python = VENV if name.endswith("headrace") else PEERS
    command = [python, os.path.join(HERE, "peers", f"audio_{name}.py"), "--files", listing,
               *options]
    return harness.Worker(name, command, cpus or {parts.core})


def micros(worker):
    """Returns the median microseconds of CPU time per sample."""
    return statistics.median(p["cpu_seconds"] / p["samples"] * 1e6 for p in worker.passes)


def ratio(ours, theirs):
    return harness.ratio(ours, theirs, "cpu_seconds")


def compare(parts, title, ours, peers, keys):
    """Runs our worker and the peers' in turn. ours, peers: (name, list, options ...). keys: {peer:
    its figure}. A peer that cannot be had makes its figure null."""
    workers = [start(parts, *ours)]
    for peer in peers:
        try:
            workers.append(start(parts, *peer))
        except Missing as reason:
            parts.refuse([keys[peer[0]]] if peer[0] in keys else [], f"{peer[0]}: {reason}")
    try:
        harness.interleave(workers, parts.args.passes)
    finally:
        for worker in workers:
            worker.close()
    for worker in workers:
        note = f"{ratio(workers[0], worker):>7.2f}x" if worker is not workers[0] else ""
        log(f"{title:<14} {worker.info['name']:<24} {micros(worker):>8.0f} us {note:<9} "
            f"({worker.info['version']})")
        if worker.name in keys:
            parts.figures[keys[worker.name]] = ratio(workers[0], worker)
    return workers


def window_part(kind, peers, keys):
    """Log-mel features of windows of one format."""
    def part(parts):
        listing = parts.listing[kind]
        workers = compare(parts, f"{kind} log-mel", ("headrace", listing),
                          [(name, listing) for name in peers], keys)
        parts.figures[f"{kind}_logmel_us"] = micros(workers[0])
    return part


def raw(parts):
    """M5's windows from MP3, on one core; printed."""
    listing = parts.listing["mp3"]
    workers = compare(parts, "mp3 raw 8 kHz", ("headrace", listing, "--recipe", "raw"),
                      [("torchcodec", listing, "--recipe", "raw")],
                      {"torchcodec": "mp3_raw_vs_torchcodec"})
    parts.figures["mp3_raw_us"] = micros(workers[0])


def waveform_part(recipe, key):
    """Items of the form waveform against torchcodec on the MP3 files that they were made of."""
    def part(parts):
        options = (parts.listing["mp3"], "--recipe", recipe)
        ours = ("headrace", *options, "--form", "waveform", "--rounds", WAVEFORM_ROUNDS)
        workers = compare(parts, f"waveform {recipe}", ours, [("torchcodec", *options)],
                          {"torchcodec": key})
        share = workers[0].info["bytes"] / sum(map(os.path.getsize, parts.files["mp3"]))
        parts.figures[f"waveform_{recipe}_us"] = micros(workers[0])
        parts.figures[f"waveform_{recipe}_bytes_vs_mp3"] = share
        log(f"{'':<14} {share:.2f} times the bytes of the MP3 files")
    return part


def make_pack(parts):
    """Writes a pack of waveforms of 8 kHz of the MP3 files. Returns its path."""
    pack = os.path.join(parts.scratch, "waveform.pack")
    code = ("import sys, headrace; files = open(sys.argv[1]).read().splitlines(); "
            "headrace.pack(headrace.AudioList([(path, 0) for path in files]), sys.argv[2], "
            "form='waveform', mono=True, rate=8000)")
    made = subprocess.run([VENV, "-c", code, parts.listing["mp3"], pack], stderr=subprocess.PIPE,
                          text=True)
    if made.returncode:
        raise Missing(made.stderr.strip().rpartition("\n")[2][:200])
    return pack


def m5(parts):
    """M5's input through both DataLoaders, all cores, from the same MP3 files; and ours from a pack
    of the form waveform."""
    cores, listing = os.sched_getaffinity(0), parts.listing["mp3"]
    workers = [start(parts, "loader_headrace", listing, cpus=cores)]
    try:
        workers.append(start(parts, "loader_torch", listing, cpus=cores))
        workers.append(start(parts, "loader_torch", listing, "--windows", cpus=cores))
        try:
            workers.append(start(parts, "loader_headrace", listing, "--pack",
                                 make_pack(parts), cpus=cores))
        except Missing as reason:
            log(f"left out  the pack: {reason}")
        harness.interleave(workers, min(parts.args.passes, 5))
    finally:
        for worker in workers:
            worker.close()
    ours, theirs, windows, *pack = workers
    for worker in workers:
        note = f"{harness.ratio(ours, worker):>7.2f}x" if worker is not ours else ""
        name = worker.info["name"] + (", waveform" if worker in pack else "")
        log(f"{'M5 input':<14} {name:<34} {1e6 / worker.micros():>8.0f} samples/s {note}")
    parts.figures["m5_samples_per_s"] = 1e6 / ours.micros()
    parts.figures["m5_vs_torch"] = harness.ratio(ours, theirs)
    parts.figures["m5_vs_torch_windows"] = harness.ratio(ours, windows)
    if pack:
        parts.figures["m5_waveform_vs_torch"] = harness.ratio(pack[0], theirs)


def errors(parts):
    """The largest differences from the same computed in float64, over whole clips."""
    command = [VENV, os.path.join(HERE, "peers", "audio_errors.py"), "--files",
               parts.listing["wav"]]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    for key, value in zip(("resample_error", "logmel_error"), map(float, out)):
        parts.figures[key] = float(f"{value:.2g}")
        log(f"{key:<14} {value:.2g}")


PARTS = {
    "errors": (errors, ["resample_error", "logmel_error"], 60),
    "mp3": (window_part("mp3", ["torchcodec", "torchcodec_whole", "soundfile", "librosa"],
                        {"torchcodec": "mp3_window_vs_torchcodec"}),
            ["mp3_window_vs_torchcodec"], 60),
    "flac": (window_part("flac", ["torchcodec", "soundfile", "librosa", "dali"],
                         {"torchcodec": "flac_window_vs_torchcodec", "dali": "flac_vs_dali"}),
             ["flac_window_vs_torchcodec", "flac_vs_dali"], 60),
    "vorbis": (window_part("ogg", ["torchcodec", "soundfile", "librosa"],
                           {"torchcodec": "vorbis_window_vs_torchcodec"}),
               ["vorbis_window_vs_torchcodec"], 60),
    "wav": (window_part("wav", ["soundfile", "torchcodec", "librosa"],
                        {"soundfile": "wav_window_vs_soundfile"}),
            ["wav_window_vs_soundfile"], 60),
    "raw": (raw, ["mp3_raw_vs_torchcodec"], 30),
    "waveform": (waveform_part("logmel", "waveform_logmel_vs_torchcodec_mp3"),
                 ["waveform_logmel_vs_torchcodec_mp3"], 60),
    "waveform_raw": (waveform_part("raw", "waveform_raw_vs_torchcodec_mp3"),
                     ["waveform_raw_vs_torchcodec_mp3"], 60),
    "m5": (m5, ["m5_vs_torch"], 120),
}


def main():
    options = harness.parser("audio", __doc__, PARTS, 15,
                             os.environ.get("MUSIC") or os.path.join(ROOT, "data", "music"),
                             "a folder of tools/make_music.py")
    options.add_argument("--passes", type=int, default=9)
    parts = harness.Parts(options.parse_args())
    parts.core = harness.choose_core()
    parts.files = {kind: sorted(glob.glob(os.path.join(parts.args.data, kind, f"*.{kind}")))
                   for kind in FORMATS}
    if not all(parts.files.values()):
        sys.exit(f"{parts.args.data}: no clips; make them with tools/make_music.py, or name a "
                 "folder with --data")
    with tempfile.TemporaryDirectory() as scratch:
        parts.scratch = scratch
        parts.listing = {kind: harness.write_list(scratch, kind, files)
                         for kind, files in parts.files.items()}
        parts.run(PARTS, (subprocess.SubprocessError, OSError))
    parts.finish("audio")


if __name__ == "__main__":
    main()
