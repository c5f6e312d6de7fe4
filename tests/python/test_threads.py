"""Objects of the extension that several threads use at once, with and without the GIL.

One that serves one thread at a time refuses the others with RuntimeError; the results of those
that it serves are right. Neither torch nor torchvision is needed, which have few builds for Python
without the GIL.
"""

import contextlib
import subprocess
import sys
import sysconfig
import threading

import pytest

import headrace
import headrace.transforms as T
from headrace import _core

THREADS = 4


def together(work):
    """Runs work(number) in several threads that start at the same time."""
    barrier = threading.Barrier(THREADS)
    errors = []

    def run(number):
        barrier.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: B902 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL")
def test_the_gil_stays_off():
    code = "import sys, headrace._core; sys.exit(sys._is_gil_enabled())"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0


def test_a_loader(dataset):
    recipe = T.make_recipe(dataset.transform)
    for closes in (False, True):
        loader = _core.Loader(dataset._dataset, recipe, batch_size=2)
        loader.start_epoch(0)
        numbers = []

        def work(number, loader=loader, numbers=numbers, closes=closes):
            for step in range(200):
                try:
                    batch = loader.next()
                    if batch is None:
                        return
                    numbers.append((batch.number, sum(memoryview(batch.indices))))
                    assert loader.stats()["batches"] <= loader.batches
                    loader.get_state()
                    if closes and number == 0 and step == 2:
                        loader.close()
                except RuntimeError as error:
                    assert "another thread" in str(error) or "closed" in str(error)
                    if "closed" in str(error):
                        return

        together(work)
        assert len({number for number, _ in numbers}) == len(numbers)
        if not closes:
            while (batch := loader.next()) is not None:
                numbers.append((batch.number, sum(memoryview(batch.indices))))
            assert sorted(number for number, _ in numbers) == list(range(loader.batches))
            count = len(dataset)
            assert sum(total for _, total in numbers) == count * (count - 1) // 2


def test_a_cache():
    cache = _core.Cache("shm:threads?size=64MiB", "numbers", items=1000)

    def work(number):
        kept = []
        try:
            for i in range(400):
                key = b"%d" % (i % 100)
                value = cache.get(key)
                if value is None:
                    cache.put(key, [key * 10])
                else:
                    assert bytes(value) == key * 10
                    kept.append(value)
                if i % 7 == 0:
                    kept.clear()
                if i % 100 == 99:
                    assert cache.info()["users"] == 1
                if number == 0 and i == 350:
                    cache.close()
        except RuntimeError as error:
            assert "closed" in str(error)

    together(work)


def test_a_preparer(photos):
    preparer, converter = _core.Preparer(), _core.Converter()
    size = _core.Preparer().info(photos[0])["width"]

    def work(number):
        for _ in range(50):
            for use in (
                lambda: preparer.info(photos[0])["width"] == size,
                lambda: preparer.decode(photos[0]).shape[1] == size,
                lambda: preparer.damage is None,
                lambda: _core.form_of(converter.convert(photos[0], "planes")) == "planes",
            ):
                try:
                    assert use()
                except RuntimeError as error:
                    assert "make one per thread" in str(error)

    together(work)


def test_a_list_that_another_thread_changes():
    fields = {"probability": 0.5}
    operations = [("RandomInvert", fields)] * 3
    stop = threading.Event()

    def change():
        while not stop.is_set():
            operations.append(("RandomInvert", {"probability": 0.25}))
            operations.pop()
            fields["other"] = 1.0
            fields.pop("other")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(2000):
            # Right or wrong at that moment: never a crash.
            with contextlib.suppress(TypeError, ValueError):
                _core.Recipe(operations)
    finally:
        stop.set()
        thread.join()


def test_a_dataset(dataset, folder):
    def work(number):
        for i in range(len(dataset)):
            assert dataset._dataset.label(i) == dataset.targets[i]
            assert dataset._dataset.path(i).startswith(str(folder))
        assert headrace.ImageFolder(folder).classes == dataset.classes

    together(work)
