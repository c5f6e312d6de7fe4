/*
 * Draws the lives of blocks: a bar per block from its allocation to its free, with a tick per
 * access. Uses a plain canvas, because each step of a zoom draws thousands of bars and tens of
 * thousands of ticks.
 *
 * Layouts of bars: first fit with the longest lives first, so that lasting blocks are below and
 * short-lived ones above; or one row per block, in order of allocation. If a block is older than
 * the period that is drawn, its bar begins at the edge.
 */
report.lives = (function () {
  "use strict";
  const canvas = document.getElementById("chart-lives");
  const nothing = { show() {}, bounds: null };
  if (!canvas || !report.data.lives) return nothing;
  const { theme, words } = report;
  const lives = report.data.lives, names = lives.names;
  const edge = { begin: lives.begin_ns, end: Math.max(lives.end_ns, lives.begin_ns + 1) };
  const margin = { left: 4, right: 4, top: 4, bottom: 22 };
  const status = document.getElementById("lives-status"), tip = document.getElementById("lives-tip");

  const blocks = lives.blocks.map((row) => ({
    category: row[0], begin: row[1], end: row[2] === null ? Infinity : row[2], bytes: row[3],
    reads: row[4], writes: row[5], device: names[row[6]], operator: names[row[7]],
    what: names[row[8]], part: names[row[9]], accesses: [], y: 0, height: 1,
  }));
  for (let i = 0, at = edge.begin; i < lives.accesses.length; i += 4) {
    at += lives.accesses[i + 1];
    blocks[lives.accesses[i]].accesses.push({
      at, write: lives.accesses[i + 2] === 1, operator: names[lives.accesses[i + 3]],
    });
  }
  const devices = [...new Set(blocks.map((b) => b.device))].sort();
  const present = report.data.categories.map((_, c) => c).filter((c) => blocks.some((b) => b.category === c));

  const state = {
    device: devices.includes(report.data.device.device) ? report.data.device.device : devices[0],
    layout: "log", hidden: new Set(), chosen: null, under: null,
    x0: edge.begin, x1: edge.end, y0: 0, y1: 1, rows: 1, visible: [],
  };

  /* ---- layouts ---- */

  const layouts = {
    log: ["height by the logarithm of bytes", (b) => 1 + Math.log2(1 + b.bytes / 64) / 2],
    bytes: ["height by bytes", (b) => b.bytes],
    rows: ["a row each, in their order", () => 1],
  };

  function clipped(b) {
    return [Math.max(b.begin, edge.begin), Math.min(b.end, edge.end)];
  }

  /* Finds the lowest place that is free during the block's whole life. */
  function firstFit(block, placed) {
    const [begin, end] = clipped(block);
    let y = 0;
    for (const other of placed) { /* sorted by y */
      if (other.begin >= end || other.end <= begin) continue;
      if (other.y >= y + block.height) break;
      y = Math.max(y, other.y + other.height);
    }
    return y;
  }

  function arrange() {
    const shown = blocks.filter((b) => b.device === state.device && !state.hidden.has(b.category));
    const height = layouts[state.layout][1];
    let top = 0;
    if (state.layout === "rows") {
      shown.forEach((b, i) => { b.y = i; b.height = 1; });
      top = shown.length;
    } else {
      const placed = [];
      const life = (b) => clipped(b)[1] - clipped(b)[0];
      for (const b of [...shown].sort((p, q) => life(q) - life(p) || p.begin - q.begin)) {
        b.height = height(b);
        b.y = firstFit(b, placed);
        let at = placed.length;
        while (at > 0 && placed[at - 1].y > b.y) at--;
        placed.splice(at, 0, b);
        top = Math.max(top, b.y + b.height);
      }
    }
    state.visible = shown;
    state.rows = Math.max(top, 1e-9);
    state.y0 = 0;
    state.y1 = state.rows;
  }

  /* ---- drawing ---- */

  function box() {
    return {
      left: margin.left, top: margin.top,
      width: Math.max(canvas.clientWidth - margin.left - margin.right, 1),
      height: Math.max(canvas.clientHeight - margin.top - margin.bottom, 1),
    };
  }

  const xOf = (ns, area) => area.left + (ns - state.x0) / (state.x1 - state.x0) * area.width;
  const yOf = (y, area) => area.top + area.height - (y - state.y0) / (state.y1 - state.y0) * area.height;
  const nsAt = (x, area) => state.x0 + (x - area.left) / area.width * (state.x1 - state.x0);
  const rowAt = (y, area) => state.y0 + (area.top + area.height - y) / area.height * (state.y1 - state.y0);

  function drawAxis(c, area) {
    const span = state.x1 - state.x0, about = span / Math.max(area.width / 110, 1);
    const power = 10 ** Math.floor(Math.log10(about));
    const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= about);
    c.fillStyle = theme.soft;
    c.strokeStyle = theme.line;
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "top";
    for (let ns = Math.ceil(state.x0 / step) * step; ns <= state.x1; ns += step) {
      const x = Math.round(xOf(ns, area)) + 0.5;
      c.beginPath();
      c.moveTo(x, area.top);
      c.lineTo(x, area.top + area.height + 4);
      c.stroke();
      const label = words.moment(ns, step);
      const half = c.measureText(label).width / 2;
      c.fillText(label, Math.min(Math.max(x - half, 0), area.left + area.width - 2 * half), area.top + area.height + 6);
    }
  }

  function drawMoments(c, area) {
    c.save();
    c.lineWidth = 1;
    c.strokeStyle = theme.soft;
    c.setLineDash([2, 3]);
    for (const one of lives.iterations || []) {
      const x = Math.round(xOf(one.begin_ns, area)) + 0.5;
      if (x < area.left || x > area.left + area.width) continue;
      c.beginPath();
      c.moveTo(x, area.top);
      c.lineTo(x, area.top + area.height);
      c.stroke();
    }
    const peak = report.data.device.peak_ns;
    if (state.device === report.data.device.device && peak >= state.x0 && peak <= state.x1) {
      const x = Math.round(xOf(peak, area)) + 0.5;
      c.setLineDash([6, 4]);
      c.strokeStyle = theme.text;
      c.lineWidth = 1.5;
      c.beginPath();
      c.moveTo(x, area.top);
      c.lineTo(x, area.top + area.height);
      c.stroke();
    }
    c.restore();
  }

  /* Draws a bar's ticks, at most one per pixel. */
  function drawTicks(c, block, area, top, height) {
    const half = height / 2;
    const last = [-1, -1];
    for (const access of block.accesses) {
      if (access.at < state.x0 || access.at > state.x1) continue;
      const x = Math.round(xOf(access.at, area));
      const kind = access.write ? 1 : 0;
      if (x === last[kind]) continue;
      last[kind] = x;
      c.fillRect(x, access.write ? top : top + half, 1, half);
    }
  }

  function draw() {
    const scale = window.devicePixelRatio || 1, area = box();
    const width = Math.round(canvas.clientWidth * scale), height = Math.round(canvas.clientHeight * scale);
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    const c = canvas.getContext("2d");
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    drawAxis(c, area);
    c.save();
    c.beginPath();
    c.rect(area.left, area.top, area.width, area.height);
    c.clip();
    for (const b of state.visible) {
      if (b.begin > state.x1 || b.end < state.x0) continue;
      const left = Math.max(xOf(b.begin, area), area.left), right = Math.min(xOf(b.end, area), area.left + area.width);
      const top = yOf(b.y + b.height, area), tall = yOf(b.y, area) - top;
      if (top > area.top + area.height || top + tall < area.top) continue;
      const gap = tall > 3 ? 1 : 0;
      c.fillStyle = words.fills[b.category];
      c.fillRect(left, top, Math.max(right - left, 1), Math.max(tall - gap, 0.5));
      if (tall >= 4) {
        c.fillStyle = "rgba(0, 0, 0, 0.72)";
        drawTicks(c, b, area, top, tall - gap);
      }
    }
    for (const b of [state.under, state.chosen])
      if (b && state.visible.includes(b)) outline(c, b, area);
    drawMoments(c, area);
    c.restore();
  }

  function outline(c, b, area) {
    const left = Math.max(xOf(b.begin, area), area.left - 4), right = Math.min(xOf(b.end, area), area.left + area.width + 4);
    const top = yOf(b.y + b.height, area), tall = yOf(b.y, area) - top;
    c.strokeStyle = theme.text;
    c.lineWidth = 2;
    c.strokeRect(left - 1, top - 1, Math.max(right - left, 1) + 2, tall + 2);
  }

  let asked = false;
  function redraw() {
    if (asked) return;
    asked = true;
    window.requestAnimationFrame(() => { asked = false; draw(); });
  }

  /* ---- zooming and panning ---- */

  const least = 100; /* ns: shortest period that fills the chart */

  function setTime(x0, x1) {
    const most = edge.end - edge.begin, span = Math.min(Math.max(x1 - x0, Math.min(least, most)), most);
    const middle = (x0 + x1) / 2;
    state.x0 = Math.min(Math.max(middle - span / 2, edge.begin), edge.end - span);
    state.x1 = state.x0 + span;
    redraw();
  }

  function setRows(y0, y1) {
    const span = Math.min(Math.max(y1 - y0, state.rows / 500), state.rows);
    const middle = (y0 + y1) / 2;
    state.y0 = Math.min(Math.max(middle - span / 2, 0), state.rows - span);
    state.y1 = state.y0 + span;
    redraw();
  }

  function zoom(factor, at) {
    const middle = at === undefined ? (state.x0 + state.x1) / 2 : at;
    setTime(middle - (middle - state.x0) * factor, middle + (state.x1 - middle) * factor);
  }

  function zoomRows(factor, at) {
    const middle = at === undefined ? (state.y0 + state.y1) / 2 : at;
    setRows(middle - (middle - state.y0) * factor, middle + (state.y1 - middle) * factor);
  }

  function all() {
    setTime(edge.begin, edge.end);
    setRows(0, state.rows);
  }

  /* ---- describing blocks ---- */

  function lifeOf(b) {
    const begin = b.begin > 0 ? words.time(b.begin) : "before the recording";
    const end = b.end === Infinity ? "its end" : words.time(b.end);
    const span = b.begin > 0 && b.end !== Infinity ? ", " + words.time(b.end - b.begin) + " long" : "";
    return "lives from " + begin + " to " + end + span;
  }

  function tell(b, ns) {
    const lines = [
      words.categories[b.category] + (b.what ? " " + b.what : "") + ", " + words.bytes(b.bytes),
      (b.operator ? "first operator " + b.operator : "no operator") + (b.part ? ", in " + b.part : ""),
      lifeOf(b),
      b.reads + (b.reads === 1 ? " read, " : " reads, ") + b.writes + (b.writes === 1 ? " write" : " writes"),
    ];
    if (ns !== undefined && b.accesses.length) {
      const near = b.accesses.reduce((p, q) => (Math.abs(q.at - ns) < Math.abs(p.at - ns) ? q : p));
      lines.push((near.write ? "written" : "read") + " by " + near.operator + " at " + words.time(near.at));
    }
    return lines;
  }

  function blockAt(x, y) {
    const area = box(), ns = nsAt(x, area), row = rowAt(y, area);
    const slack = 2 * (state.x1 - state.x0) / area.width;
    return state.visible.find((b) => ns >= b.begin - slack && ns <= b.end + slack && row >= b.y && row < b.y + b.height) || null;
  }

  function hover(event) {
    const b = blockAt(event.offsetX, event.offsetY);
    if (b !== state.under) {
      state.under = b;
      redraw();
    }
    tip.hidden = !b;
    if (!b) return;
    tip.textContent = tell(b, nsAt(event.offsetX, box())).join("\n");
    const left = event.offsetX + 14 + tip.offsetWidth > canvas.clientWidth;
    tip.style.left = Math.max(left ? event.offsetX - tip.offsetWidth - 10 : event.offsetX + 14, 0) + "px";
    tip.style.top = Math.min(event.offsetY + 14, canvas.clientHeight - tip.offsetHeight) + "px";
  }

  function choose(b) {
    state.chosen = b;
    status.textContent = b ? tell(b).join("; ") + "." : "";
    redraw();
  }

  /* Selects the next or previous block, in order of allocation, and moves it into view. */
  function walk(by) {
    if (!state.visible.length) return;
    const at = state.visible.indexOf(state.chosen);
    const next = at < 0 ? (by > 0 ? 0 : state.visible.length - 1)
      : (at + by + state.visible.length) % state.visible.length;
    const b = state.visible[next], [begin, end] = clipped(b);
    if (end < state.x0 || begin > state.x1) setTime(begin - (state.x1 - state.x0) / 2, begin + (state.x1 - state.x0) / 2);
    if (b.y > state.y1 || b.y + b.height < state.y0) setRows(b.y - (state.y1 - state.y0) / 2, b.y + (state.y1 - state.y0) / 2);
    choose(b);
  }

  /* ---- mouse, touch and keyboard ---- */

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, view: [state.x0, state.x1, state.y0, state.y1], moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) {
      hover(event);
      return;
    }
    const area = box(), dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (Math.abs(dx) + Math.abs(dy) < 4 && !drag.moved) return;
    drag.moved = true;
    tip.hidden = true;
    const [x0, x1, y0, y1] = drag.view;
    const ns = dx / area.width * (x1 - x0), rows = dy / area.height * (y1 - y0);
    setTime(x0 - ns, x1 - ns);
    setRows(y0 + rows, y1 + rows);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) choose(blockAt(event.offsetX, event.offsetY));
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
    state.under = null;
    redraw();
  });
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return; /* let the page scroll */
    event.preventDefault();
    const turned = event.deltaY || event.deltaX; /* with Shift some browsers scroll sideways */
    const factor = 1.2 ** Math.sign(turned), area = box();
    if (event.shiftKey) zoomRows(factor, rowAt(event.offsetY, area));
    else zoom(factor, nsAt(event.offsetX, area));
    hover(event);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const span = state.x1 - state.x0, rows = state.y1 - state.y0;
    const keys = {
      ArrowLeft: () => setTime(state.x0 - span / 8, state.x1 - span / 8),
      ArrowRight: () => setTime(state.x0 + span / 8, state.x1 + span / 8),
      ArrowUp: () => setRows(state.y0 + rows / 8, state.y1 + rows / 8),
      ArrowDown: () => setRows(state.y0 - rows / 8, state.y1 - rows / 8),
      "+": () => zoom(1 / 1.4), "=": () => zoom(1 / 1.4), "-": () => zoom(1.4),
      PageUp: () => zoomRows(1 / 1.4), PageDown: () => zoomRows(1.4),
      n: () => walk(1), p: () => walk(-1), 0: all, Escape: () => choose(null),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });

  /* ---- tools ---- */

  function button(text, name, pressed) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.setAttribute("aria-label", name);
    made.title = name;
    made.addEventListener("click", pressed);
    return made;
  }

  function categoryBox(c) {
    const check = document.createElement("input"), swatch = document.createElement("span");
    check.type = "checkbox";
    check.checked = true;
    swatch.className = "swatch";
    swatch.style.backgroundColor = words.fills[c];
    check.addEventListener("change", () => {
      if (check.checked) state.hidden.delete(c);
      else state.hidden.add(c);
      arrange();
      redraw();
    });
    const label = document.createElement("label");
    label.append(check, swatch, words.categories[c]);
    return label;
  }

  function makeTools() {
    const tools = document.getElementById("lives-tools");
    const changed = (key) => (value) => { state[key] = value; arrange(); redraw(); };
    tools.append(
      button("+", "zoom in", () => zoom(1 / 1.6)), button("\u2212", "zoom out", () => zoom(1.6)),
      button("all", "show all of it", all),
      report.choice("bars:", Object.entries(layouts).map(([k, v]) => [k, v[0]]), state.layout, changed("layout")));
    if (devices.length > 1)
      tools.append(report.choice("device:", devices.map((d) => [d, words.device(d)]), state.device, changed("device")));
    for (const c of present) tools.append(categoryBox(c));
  }

  makeTools();
  arrange();
  if (lives.cut) status.textContent = "Of the accesses only the first " + lives.accesses.length / 4 + " are drawn.";
  report.painted(draw);
  new ResizeObserver(redraw).observe(canvas.parentElement);

  return {
    bounds: edge,
    /* Shows the lives around a moment. */
    show(ns) {
      const span = (edge.end - edge.begin) / 6;
      canvas.scrollIntoView({ block: "center" });
      if (ns < edge.begin || ns > edge.end) {
        status.textContent = "The lives that are drawn are those from " + words.time(edge.begin) + " to " + words.time(edge.end) + ".";
        return;
      }
      setTime(ns - span / 2, ns + span / 2);
      status.textContent = "Around " + words.time(ns) + ".";
    },
  };
})();
