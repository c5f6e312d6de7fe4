#!/usr/bin/env python3
"""What a browser makes of report pages: no message on its console, every chart drawn, no
script of outside text run; and that the policy's hashes are those of the scripts.

Usage: test_browser.py PAGES, the program that writes pages into a folder. The part that
needs a browser is skipped where there is none ($CHROMIUM, chromium, google-chrome).
"""
import base64
import hashlib
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1)
BROWSER = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Its own troubles with the machine, not the page's.
CONSOLE = re.compile(r"CONSOLE[:(\]]")
DRAWN = re.compile(r'<canvas [^>]*id="([\w-]+)"[^>]*>')


class Parts(html.parser.HTMLParser):
    """Scripts, styles, canvases, the policy and every address of a page."""

    def __init__(self):
        super().__init__()
        self.scripts, self.styles, self.canvases, self.addresses = [], [], [], []
        self.policy, self.open, self.data = "", None, None

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.addresses += [v for k, v in attributes if k in ("src", "href", "srcset", "action")]
        if tag == "meta" and named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"]
        if tag == "canvas":
            self.canvases.append(named["id"])
        if tag in ("script", "style"):
            self.open = (tag, named.get("type"))

    def handle_data(self, data):
        if not self.open:
            return
        tag, kind = self.open
        if kind == "application/json":
            self.data = json.loads(data)
        else:
            (self.scripts if tag == "script" else self.styles).append(data)

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.open = None


def parse(page):
    parts = Parts()
    parts.feed(page.read_text(encoding="utf-8"))
    return parts


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        subprocess.run([PROGRAM, cls.folder.name], check=True)
        cls.pages = sorted(Path(cls.folder.name).glob("*.html"))

    def test_policy_allows_what_is_there_and_no_more(self):
        for page in self.pages:
            parts = parse(page)
            for kind, texts in (("script-src", parts.scripts), ("style-src", parts.styles)):
                allowed = re.search(kind + r" ([^;]*)", parts.policy).group(1).split()
                hashes = ["'sha256-" + base64.b64encode(
                    hashlib.sha256(text.encode()).digest()).decode() + "'" for text in texts]
                with self.subTest(page=page.name, kind=kind):
                    self.assertEqual(hashes, allowed[:len(hashes)] if texts else [])
                    self.assertNotIn("'unsafe-inline'", allowed)
            self.assertIn("default-src 'none'", parts.policy)
            self.assertEqual(parts.addresses, ["data:,"])

    def test_outside_text_is_text(self):
        for name in ("hostile.html", "memory-hostile.html", "plan.html", "replay.html"):
            with self.subTest(page=name):
                parts = parse(Path(self.folder.name) / name)
                self.assertLessEqual(len(parts.scripts), 2)
                self.assertFalse([s for s in parts.scripts if s.startswith("alert")])

    def browse(self, page, *arguments):
        """The document after its scripts ran, and what the browser said."""
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        with tempfile.TemporaryDirectory() as profile:
            done = subprocess.run(
                [BROWSER, "--headless", *sandbox, "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-first-run", "--window-size=1200,1000", "--virtual-time-budget=5000",
                 "--enable-logging=stderr", f"--user-data-dir={profile}", *arguments, "--dump-dom",
                 page.as_uri()],
                capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, [line for line in done.stderr.splitlines() if CONSOLE.search(line)]

    @unittest.skipUnless(BROWSER, "no browser: install chromium, or name one by CHROMIUM")
    def test_charts_are_drawn_without_a_word(self):
        for page in self.pages:
            with self.subTest(page=page.name):
                document, said = self.browse(page)
                self.assertEqual(said, [])
                drawn = {m.group(1): m.group(0) for m in DRAWN.finditer(document)}
                self.assertEqual(sorted(drawn), sorted(parse(page).canvases))
                for canvas in drawn.values():
                    # A chart has the size of its place.
                    width = re.search(r' width="(\d+)"', canvas)
                    self.assertTrue(width and int(width.group(1)) > 200, canvas)

    @unittest.skipUnless(BROWSER, "no browser: install chromium, or name one by CHROMIUM")
    def test_on_a_phone_in_the_dark(self):
        for name in ("gpu.html", "memory-sides.html", "replay.html"):
            page = Path(self.folder.name) / name
            with self.subTest(page=name):
                document, said = self.browse(page, "--window-size=390,800", "--force-dark-mode",
                                             "--blink-settings=preferredColorScheme=0")
                self.assertEqual(said, [])
                self.assertEqual(len(DRAWN.findall(document)), len(parse(page).canvases))

    @unittest.skipUnless(BROWSER, "no browser: install chromium, or name one by CHROMIUM")
    def test_lives_answer_keys_wheel_and_pointer(self):
        if not parse(Path(self.folder.name) / "memory-sides.html").canvases:
            self.skipTest("pages are built without charts")
        outer = Path(self.folder.name) / "outer.htm"
        outer.write_text(HANDS)
        document, said = self.browse(outer, "--allow-file-access-from-files",
                                     "--window-size=1200,8000", "--virtual-time-budget=60000")
        self.assertEqual(said, [])
        steps = dict(re.findall(r'<li id="(\w+)">([^<]*)</li>', document))
        self.assertIn("activations [64, 4096] float32", steps["walked"])
        self.assertIn("in features.0", steps["walked"])
        self.assertRegex(steps["hovered"], r"\d+ reads?, \d+ writes?")
        for step in ("zoomed", "wheeled", "moved", "rows", "hidden"):
            self.assertEqual(steps[step], "changed", step)
        self.assertEqual(steps["scrolled"], "same")  # the page's, while the chart is not chosen
        self.assertEqual(steps["all"], "same")  # as it was at first


# Does with a page's chart of lives what hands do, and lists what comes of it.
HANDS = """<!DOCTYPE html><meta charset="utf-8"><ul></ul>
<iframe src="memory-sides.html" width="1100" height="8000"></iframe><script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", async () => {
  const page = frame.contentDocument, inside = frame.contentWindow;
  const canvas = page.getElementById("chart-lives"), box = canvas.getBoundingClientRect();
  const note = (id, text) => {
    const item = document.createElement("li");
    item.id = id;
    item.textContent = text;
    document.querySelector("ul").append(item);
  };
  const drawn = async () => {
    await new Promise((done) => setTimeout(done, 50));
    return canvas.toDataURL();
  };
  const usual = { bubbles: true, cancelable: true, pointerId: 1 };
  const key = (name) =>
    canvas.dispatchEvent(new inside.KeyboardEvent("keydown", { key: name, ...usual }));
  const at = (x, y) =>
    ({ clientX: box.left + x * box.width, clientY: box.top + y * box.height, ...usual });
  /* Drawing takes as long as it takes: looks again while it is not as wanted. */
  const step = async (id, before, act, wanted = "changed") => {
    let after, is;
    act();
    for (let i = 0; i < 100 && is !== wanted; i++) {
      after = await drawn();
      is = before === after ? "same" : "changed";
    }
    note(id, is);
    return after;
  };
  canvas.setPointerCapture = () => {};
  /* Where nobody looks, frames are few. */
  inside.requestAnimationFrame = (draw) => inside.setTimeout(draw, 0);
  const first = await drawn();
  const turn = (more) =>
    canvas.dispatchEvent(new inside.WheelEvent("wheel", { ...at(0.4, 0.5), deltaY: -100, ...more }));
  let now = await step("scrolled", first, () => turn({}), "same");
  now = await step("zoomed", now, () => { key("+"); key("+"); });
  now = await step("wheeled", now, () => turn({ ctrlKey: true }));
  now = await step("rows", now, () => turn({ ctrlKey: true, shiftKey: true }));
  now = await step("moved", now, () => {
    canvas.dispatchEvent(new inside.PointerEvent("pointerdown", at(0.5, 0.5)));
    canvas.dispatchEvent(new inside.PointerEvent("pointermove", at(0.3, 0.5)));
    canvas.dispatchEvent(new inside.PointerEvent("pointerup", at(0.3, 0.5)));
  });
  const leave = () => canvas.dispatchEvent(new inside.PointerEvent("pointerleave", at(0, 0)));
  await step("all", first, () => { leave(); key("0"); }, "same");
  canvas.dispatchEvent(new inside.PointerEvent("pointermove", at(0.5, 0.9)));
  note("hovered", page.getElementById("lives-tip").textContent);
  leave();
  let told = "";
  for (let i = 0; i < 40 && !told.includes("activations [64, 4096]"); i++) {
    key("n");
    told = page.getElementById("lives-status").textContent;
  }
  note("walked", told);
  key("Escape");
  await step("hidden", await drawn(), () => page.querySelector("#lives-tools input").click());
});
</script>"""


if __name__ == "__main__":
    unittest.main()
