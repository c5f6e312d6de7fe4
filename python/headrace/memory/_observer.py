"""Compiles the observer of operators (observer.cpp) once for the installed torch.

The library is cached in the user's cache folder, under a hash of everything that it depends on. It
is loaded only if the user owns it and nobody else can write it. If no observer is available, a
dispatch mode in Python writes the same record, but slower.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

SLOWER = (
    "operators were recorded by a dispatch mode in Python, which takes about 10 us an operator "
    "instead of 2")
SETTING = "HEADRACE_MEMORY_OBSERVER"  # "no": use the dispatch mode; else the library's folder
COMPILERS = ("c++", "g++", "clang++")
SECONDS_MOST = 300.0
HERE = Path(__file__).parent
SOURCES = ("observer.cpp", "observer.h")

# compiled()'s result, once known.
_known: tuple[str | None, str | None] | None = None


def compiled() -> tuple[str | None, str | None]:
    """Returns the library's path and None, or None and why there is no library. Compiles it if it
    is not cached, which takes some seconds and is announced on stderr."""
    global _known
    if os.environ.get(SETTING) == "no":
        return None, f"{SETTING}=no"
    if _known is None:
        try:
            found = _find()
            _let_through()
            _known = found, None
        except _Unavailable as why:
            _known = None, str(why)
            _say(f"{SLOWER.replace('were', 'are')}: {why}")
        except OSError as error:
            _known = None, f"{error.filename or 'cache folder'}: {error.strerror or error}"
            _say(f"{SLOWER.replace('were', 'are')}: {_known[1]}")
    return _known


def _let_through() -> None:
    """Lets higher-order operators (torch.cond, flex_attention) skip the observer's dispatch key.
    They look up their Python kernel by the highest key, and have none for this one. No other code
    uses the key, so this is never undone."""
    try:
        key = torch._C._parse_dispatch_key("Fake")
        always = torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS
        if key not in always:
            always.append(key)  # for operators defined later
            for operator in torch._ops._higher_order_ops.values():
                operator.fallthrough(key)
    except (AttributeError, RuntimeError) as error:
        raise _Unavailable(
            f"torch {torch.__version__} dispatches operators of higher order in another way "
            f"({error})") from None


class _Unavailable(Exception):
    """The observer is not available; the message is one line that says why."""


def _say(text: str) -> None:
    print(f"headrace: {text}", file=sys.stderr, flush=True)


def _find() -> str:
    compiler = _compiler()
    command = [*compiler, *_flags()]
    folder = _folder()
    # Versions alone are not enough: a compiler or torch may have been replaced in place.
    parts = [torch.__version__, str(torch.version.git_version), platform.machine(),
             shlex.join(command), _identity(compiler[0]), _identity(torch._C.__file__),
             *((HERE / name).read_text(encoding="utf-8") for name in SOURCES)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    path, failed = folder / f"observer-{key}.so", folder / f"observer-{key}.failed"
    with open(os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # only one of several ranks compiles
        if not path.exists():
            if failed.exists():
                raise _Unavailable(f"the observer could not be compiled earlier: see {failed}, and "
                                   "delete that file to try again")
            _compile(command, path, failed)
    _check_owner(path)
    return str(path)


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CXX", ""))
    for command in ([named] if named else [[name] for name in COMPILERS]):
        found = shutil.which(command[0])
        if found:
            return [found, *command[1:]]
    raise _Unavailable(
        f"no C++ compiler ({named[0] if named else ', '.join(COMPILERS)}) was found for compiling "
        "the operator observer; CXX names one")


def _flags() -> list[str]:
    root = Path(torch.__file__).parent
    include = root / "include"
    if not (include / "torch" / "library.h").is_file():
        raise _Unavailable(f"{include} does not contain torch's headers")
    # The same C++ library ABI as torch.
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [
        "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility-inlines-hidden",
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}", f"-I{HERE}",
        str(HERE / SOURCES[0]), f"-L{root / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10",
    ]  # fmt: skip


def _identity(path: str) -> str:
    status = os.stat(path)
    return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns}"


def _folder() -> Path:
    """Returns the folder for the library, created if necessary; only its owner may write it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get(SETTING) or os.path.join(base, "headrace"))
    if not folder.is_absolute():
        raise _Unavailable(f"the folder {folder} is not absolute; {SETTING} names one")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(folder)
    return folder


def _check_owner(path: Path) -> None:
    """Refuses a file or folder that another user could have written."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise _Unavailable(
            f"other users could have written {path} (owner {status.st_uid}, mode "
            f"{stat.S_IMODE(status.st_mode):o}), so nothing is loaded from there")


def _compile(command: list[str], path: Path, failed: Path) -> None:
    """Compiles to `path`, atomically. If that fails, `failed` keeps the compiler's output."""
    began = time.monotonic()
    _say(f"compiling the operator observer for torch {torch.__version__} (once, some seconds)")
    # Do not record or preload into the compiler.
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("LD_PRELOAD", "PYTHONPATH", "HEADRACE_TAP_RECORD")}
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = os.path.join(folder, "observer.so")
        try:
            done = subprocess.run(
                [*command, "-o", made], env={**environment, "TMPDIR": folder}, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=SECONDS_MOST, errors="replace")
        except subprocess.TimeoutExpired:
            raise _Unavailable(f"{command[0]} took longer than {SECONDS_MOST:.0f} s") from None
        if done.returncode:
            failed.write_text(f"{shlex.join(command)}\n{done.stdout}", encoding="utf-8")
            raise _Unavailable(f"{command[0]} cannot compile the observer for torch "
                               f"{torch.__version__}: {failed} has its output")
        os.chmod(made, 0o700)
        os.replace(made, path)
    _say(f"compiled in {time.monotonic() - began:.1f} s; the library is cached in {path.parent}")
