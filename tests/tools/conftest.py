"""What the tests of tools/ and examples/ share."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def photographs():
    """Real photographs: some files of the sample set (make samples), several classes."""
    data = Path(os.environ.get("HEADRACE_DATA") or ROOT / "data" / "sample")
    classes = sorted(p for p in data.iterdir() if p.is_dir()) if data.is_dir() else []
    found = {c.name: sorted(c.glob("*.jpg"))[:40] for c in classes}
    found = {name: files for name, files in found.items() if len(files) == 40}
    if len(found) < 2:
        pytest.skip(f"no photographs at {data}; run: make samples")
    return found


@pytest.fixture(scope="session")
def small_folder(photographs, tmp_path_factory):
    """An image folder of 80 of them in two classes."""
    folder = tmp_path_factory.mktemp("folder")
    for name, files in list(photographs.items())[:2]:
        (folder / name).mkdir()
        for file in files:
            (folder / name / file.name).symlink_to(file)
    return folder
