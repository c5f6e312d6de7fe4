"""Photographs as other cameras and programs write them, in bulk: the C test with --long."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_all_forms_of_other_cameras_photographs_are_exact():
    build = Path(os.environ.get("BUILD") or ROOT / "build")
    program = build / "tests" / "unit" / "codec" / "test_codec_cameras"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    run = subprocess.run([program, "--long"], capture_output=True, text=True,
                         env={**os.environ, "HEADRACE_SOURCE_ROOT": str(ROOT)})
    assert run.returncode == 0, run.stdout + run.stderr
    assert "SKIPPED" not in run.stdout, "the photographs of the sample set are missing"
