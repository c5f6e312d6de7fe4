"""Progress on the standard error stream.

On a terminal one line is kept up to date; elsewhere (a log, a pipe) a plain
line is written every few seconds. Used by the programs in this folder.
"""

import shutil
import sys
import time


class Progress:
    """Reports stages of long work; `title` stands before every line."""

    def __init__(self, title, stream=None):
        self.title = title
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.interval_s = 0.1 if self.terminal else 5.0
        self.last = 0.0
        self.stage = None
        self.begun = 0.0
        self.shown = False

    def update(self, stage, done, total, detail=""):
        """Says that `done` of `total` are done; cheap enough to be called often."""
        now = time.monotonic()
        if stage != self.stage:
            self.stage, self.begun, self.last = stage, now, 0.0
        if now - self.last < self.interval_s:
            return
        self.last = now
        left = self._left(now, done, total)
        self._write(f"{self.title}: {stage}: {done:,} of {total:,}{left}", detail)

    def done(self, stage, total):
        """Ends a stage with a line that stays."""
        seconds = time.monotonic() - self.begun if stage == self.stage else 0.0
        self.clear()
        print(f"{self.title}: {stage}: {total:,} in {seconds:.1f} s", file=self.stream, flush=True)
        self.stage = None

    def say(self, text):
        """Writes a line that stays."""
        self.clear()
        print(f"{self.title}: {text}", file=self.stream, flush=True)

    def clear(self):
        """Takes the line that is being updated off the terminal."""
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self.shown = False

    def _left(self, now, done, total):
        passed = now - self.begun
        if done <= 0 or done >= total or passed < 2.0:
            return ""
        return f", {passed / done * (total - done):.0f} s left"

    def _write(self, text, detail):
        if not self.terminal:
            print(text, file=self.stream, flush=True)
            return
        line = f"{text}  {detail}"[: shutil.get_terminal_size().columns - 1]
        self.stream.write(f"\r{line}\x1b[K")
        self.stream.flush()
        self.shown = True
