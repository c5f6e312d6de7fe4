"""The totals that `make test` ends with."""

import json

import run_tests


def test_meson_totals(tmp_path):
    log = tmp_path / "testlog.json"
    log.write_text("".join(json.dumps({"name": n, "result": r}) + "\n" for n, r in (
        ("a", "OK"), ("b", "FAIL"), ("c", "SKIP"), ("d", "TIMEOUT"), ("e", "EXPECTEDFAIL"))))
    assert run_tests.meson_totals(log) == (2, 2, 1, ["b (FAIL)", "d (TIMEOUT)"])


def test_pytest_totals(tmp_path):
    log = tmp_path / "pytest.xml"
    log.write_text("""<testsuites><testsuite>
        <testcase classname="m" name="good"/>
        <testcase classname="m" name="bad"><failure/></testcase>
        <testcase classname="m" name="broken"><error/></testcase>
        <testcase classname="m" name="not"><skipped/></testcase></testsuite></testsuites>""")
    assert run_tests.pytest_totals(log) == (1, 2, 1, ["m::bad", "m::broken"])
