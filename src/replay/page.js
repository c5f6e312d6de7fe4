/*
 * Draws an iteration before and after a what-if, a row for each thread and stream, both at one
 * scale; and the kinds of time of the critical path as bars.
 */
(function () {
  "use strict";
  const { data, theme, colours } = report;
  const fills = [colours.blue, colours.sky, colours.grey, colours.grey, colours.green, colours.yellow,
    colours.yellow, colours.pink, colours.orange, "", colours.red];
  const fill = (kind) => fills[kind] || theme.soft;
  const top = 16, thick = 15, row = 40, bottom = 24;

  function time(seconds) {
    const [factor, name] = report.unit(seconds);
    return report.number(seconds * factor) + " " + name;
  }

  /* Makes a canvas as high as its rows, and returns what draws on it. */
  function prepare(canvas, rows) {
    canvas.parentElement.style.height = rows * row + bottom + "px";
    const ratio = window.devicePixelRatio || 1, c = canvas.getContext("2d");
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    c.scale(ratio, ratio);
    c.clearRect(0, 0, width, height);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    return { c, width, height };
  }

  function axis(c, width, height, seconds) {
    const [factor, name] = report.unit(seconds);
    c.fillStyle = theme.soft;
    for (let i = 0; i <= 4; i++) {
      c.textAlign = i === 0 ? "left" : i < 4 ? "center" : "right";
      c.fillText(report.number(seconds * i / 4 * factor) + (i < 4 ? "" : " " + name), width * i / 4,
        height - bottom / 2);
    }
  }

  /* Writes a text over a row, cut to the width. */
  function label(c, text, y, width) {
    let shown = text;
    while (shown.length > 4 && c.measureText(shown).width > width) shown = shown.slice(0, -4) + "...";
    c.textAlign = "left";
    c.fillStyle = theme.text;
    c.fillText(shown, 0, y + top / 2);
  }

  function paintLane(c, lane, y, scale) {
    for (const [begin, end, busy, kind] of lane.runs) {
      c.globalAlpha = Math.max(0.35, busy / (end - begin));
      c.fillStyle = fill(kind);
      c.fillRect(begin * scale, y + top, Math.max((end - begin) * scale - 0.4, 0.6), thick);
    }
    c.globalAlpha = 1;
    c.fillStyle = colours.red;
    for (const [begin, end] of lane.critical)
      c.fillRect(begin * scale, y + top + thick + 1, Math.max((end - begin) * scale, 0.6), 3);
  }

  function tell(tip, event, text, width) {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    tip.style.left = Math.max(Math.min(event.offsetX + 12, width - 220), 0) + "px";
    tip.style.top = Math.max(event.offsetY + 12, 0) + "px";
  }

  /* Calls `find` with the place of the pointer, and shows the text that it returns. */
  function explain(canvas, tip, find) {
    canvas.addEventListener("pointermove", (event) =>
      tell(tip, event, find(event.offsetX / canvas.clientWidth, Math.floor(event.offsetY / row)),
        canvas.clientWidth));
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  function timeline(picture) {
    const canvas = document.getElementById("chart-" + picture.id);
    explain(canvas, document.getElementById(picture.id + "-tip"), (x, at) => {
      const ns = x * data.length, near = data.length / 400, lane = picture.lanes[at];
      const run = lane && (lane.runs.find((r) => r[0] <= ns && ns < r[1]) ||
        lane.runs.find((r) => r[0] - near <= ns && ns < r[1] + near));
      if (!run) return "";
      const [begin, end, , kind, count, longest, name] = run;
      const words = data.names[name] || data.kinds[kind];
      return count > 1
        ? count + " tasks in " + time((end - begin) / 1e9) + "\nlongest: " + words + ", " +
          time(longest / 1e9) + "\nmostly " + data.kinds[kind]
        : words + "\n" + data.kinds[kind] + ", " + time((end - begin) / 1e9) + "\nat " +
          time(begin / 1e9);
    });
    return function () {
      const { c, width, height } = prepare(canvas, picture.lanes.length);
      picture.lanes.forEach((lane, i) => {
        label(c, lane.name, i * row, width);
        paintLane(c, lane, i * row, width / data.length);
      });
      axis(c, width, height, data.length / 1e9);
    };
  }

  function bars() {
    const canvas = document.getElementById("chart-path");
    const longest = Math.max(...data.bars.map((bar) => bar.s));
    explain(canvas, document.getElementById("path-tip"), (x, at) => {
      const bar = data.bars[at];
      let left = 0;
      for (let k = 0; bar && k < bar.shares.length; k++) {
        const wide = bar.shares[k] * bar.s / longest;
        if (left <= x && x < left + wide)
          return data.kinds[k] + "\n" + time(bar.shares[k] * bar.s) + ", " +
            report.percent(bar.shares[k]);
        left += wide;
      }
      return "";
    });
    return function () {
      const { c, width, height } = prepare(canvas, data.bars.length);
      data.bars.forEach((bar, i) => {
        let x = 0;
        label(c, bar.name + ": " + time(bar.s), i * row, width);
        bar.shares.forEach((share, kind) => {
          const wide = share * bar.s / longest * width;
          c.fillStyle = fill(kind);
          if (wide > 0) c.fillRect(x, i * row + top, Math.max(wide - 0.5, 0.5), thick + 4);
          x += wide;
        });
      });
      axis(c, width, height, longest);
    };
  }

  /* Names the colours of the kinds that the page shows, each once. */
  function legend() {
    const used = new Set(), place = document.getElementById("legend");
    for (const bar of data.bars) bar.shares.forEach((share, k) => { if (share >= 0.0005) used.add(k); });
    for (const picture of data.pictures)
      for (const lane of picture.lanes) for (const run of lane.runs) used.add(run[3]);
    return function () {
      place.textContent = "";
      const named = new Map();
      for (const kind of [...used].sort((a, b) => a - b)) {
        const words = data.kinds[kind].replaceAll(" ", "\u00a0");
        named.set(fill(kind), [...(named.get(fill(kind)) || []), words]);
      }
      for (const [colour, words] of named) {
        const swatch = document.createElement("span");
        swatch.className = "swatch";
        swatch.style.background = colour;
        place.append(swatch, "\u00a0" + words.join(", ") + " \u00a0 ");
      }
    };
  }

  const painters = [legend(), ...data.pictures.map(timeline), bars()];
  const paint = () => { for (const one of painters) one(); };
  window.addEventListener("resize", paint);
  report.painted(paint);
  report.start();
})();
