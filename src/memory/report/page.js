/*
 * Draws the charts of a page about memory, except the lives of blocks (lives.js). Series
 * differ in order, marks or dashes as well as in colour.
 */
(function () {
  "use strict";
  const { data, theme, number, percent, axis, options, legend, words, lives } = report;
  const { blue, orange, red, green, grey, sky } = report.colours;
  const categories = data.categories.map((name, i) => ({ name, i }));
  const device = data.device;

  /* In the order of the charts; names and titles come with the data, by number. */
  const behaviours = [
    { number: 2, light: "#0072b2", dark: "#56b4e9", dash: [], point: "circle" },
    { number: 0, light: "#d55e00", dark: "#e69f00", dash: [8, 4], point: "triangle" },
    { number: 1, light: "#00795a", dark: "#009e73", dash: [2, 3], point: "rect" },
    { number: 3, light: "#a6568a", dark: "#cc79a7", dash: [8, 3, 2, 3], point: "star" },
  ].map((b) => Object.assign(b, data.behaviours[b.number]));
  const colourOf = (b) => (theme.dark ? b.dark : b.light);

  /* Ticks at powers of two and their multiples: whole numbers of binary units. */
  function bytesAxis(title, more) {
    return axis(title, Object.assign({
      ticks: { color: theme.soft, autoSkip: false, callback: (v) => words.bytes(v).replace(/\.0+(?= )/, "") },
      afterBuildTicks: (scale) => {
        const step = 2 ** Math.max(Math.ceil(Math.log2((scale.max - scale.min) / 6)), 0);
        scale.ticks = [];
        for (let v = Math.ceil(scale.min / step) * step; v <= scale.max; v += step) scale.ticks.push({ value: v });
      },
    }, more));
  }

  /* Ticks at powers of `base`. */
  function logAxis(title, format, base) {
    return axis(title, {
      type: "logarithmic", beginAtZero: false,
      ticks: { color: theme.soft, maxRotation: 0, callback: format },
      afterBuildTicks: (scale) => {
        scale.ticks = [];
        for (let v = 1; v <= scale.max; v *= base) if (v >= scale.min) scale.ticks.push({ value: v });
      },
    });
  }

  const short = (ns) => words.time(ns).replace(/\.0+(?= )/, "");

  /* ---- the peak ---- */

  function categoryBars(labels, rows, horizontal) {
    return categories.map((c) => ({
      label: words.categories[c.i], backgroundColor: words.fills[c.i], borderColor: theme.ground,
      borderWidth: 1, pointStyle: "rect", on: words.on[c.i], maxBarThickness: horizontal ? 40 : 80,
      data: rows.map((row) => (row && row[c.name]) || 0),
    })).filter((set) => set.data.some((v) => v > 0));
  }

  report.chart("chart-peak", () => ({
    type: "bar",
    data: { labels: [""], datasets: categoryBars([""], [device.peak], true).map((set) =>
      Object.assign(set, { labelled: (v) => percent(v / device.peak_bytes) })) },
    options: options({
      indexAxis: "y",
      scales: {
        x: bytesAxis("", { stacked: true, max: device.peak_bytes, display: false }),
        y: axis("", { stacked: true, display: false }),
      },
      plugins: {
        legend: legend(),
        tooltip: { callbacks: { title: () => "", label: (at) => at.dataset.label + ": " + words.bytes(at.raw) } },
      },
    }),
  }), [report.labels]);

  /* ---- over time ---- */

  let shown = data.devices.find((d) => d.device === device.device);
  const bytesCanvas = document.getElementById("chart-bytes");
  if (bytesCanvas && data.devices.length > 1) {
    const tools = document.createElement("div");
    tools.className = "tools";
    tools.append(report.choice("device:", data.devices.map((d) => [d.device, words.device(d.device)]), device.device, (name) => {
      shown = data.devices.find((d) => d.device === name);
      report.redraw();
    }));
    bytesCanvas.parentElement.before(tools);
  }

  /* Marks the peak, and the period that the lives show. */
  const moments = {
    id: "moments",
    beforeDatasetsDraw(chart) {
      const bounds = lives.bounds, { x, y } = chart.scales, c = chart.ctx;
      if (!bounds) return;
      c.save();
      c.fillStyle = theme.dark ? "rgba(255, 255, 255, 0.08)" : "rgba(0, 0, 0, 0.06)";
      const left = x.getPixelForValue(bounds.begin), right = x.getPixelForValue(bounds.end);
      c.fillRect(left, y.top, right - left, y.bottom - y.top);
      c.restore();
    },
    afterDatasetsDraw(chart) {
      const { x, y } = chart.scales, c = chart.ctx, at = x.getPixelForValue(shown.peak_ns);
      const text = "peak: " + words.bytes(shown.peak_bytes);
      c.save();
      c.strokeStyle = c.fillStyle = theme.text;
      c.lineWidth = 1.5;
      c.setLineDash([6, 4]);
      c.beginPath();
      c.moveTo(at, y.top);
      c.lineTo(at, y.bottom);
      c.stroke();
      c.font = "600 12px system-ui, sans-serif";
      c.textBaseline = "bottom";
      const width = c.measureText(text).width;
      c.fillText(text, Math.min(Math.max(at - width / 2, x.left), x.right - width), y.top - 2);
      c.restore();
    },
  };

  function timeAxis(from, to) {
    const step = (to - from) / 8;
    return axis("since the recording began", {
      type: "linear", beginAtZero: false, min: from, max: to,
      ticks: { color: theme.soft, maxRotation: 0, includeBounds: false, callback: (v) => words.moment(v, step) },
      grid: { display: false },
    });
  }

  function stacked() {
    const ns = shown.timeline.ns, sum = ns.map(() => 0), sets = [];
    for (const c of categories) {
      const own = shown.timeline.bytes[c.name];
      if (!own) continue;
      own.forEach((v, i) => { sum[i] += v; });
      sets.push({
        label: words.categories[c.i], backgroundColor: words.fills[c.i], borderColor: words.fills[c.i],
        borderWidth: 0, pointRadius: 0, pointStyle: "rect", stepped: true, own,
        fill: sets.length ? "-1" : "origin", data: ns.map((x, i) => ({ x, y: sum[i] })),
      });
    }
    return sets;
  }

  report.chart("chart-bytes", () => ({
    type: "line",
    data: { datasets: stacked() },
    options: options({
      parsing: false, normalized: true,
      layout: { padding: { top: 16 } },
      interaction: { mode: "index", intersect: false },
      onClick: (event, _, chart) => lives.show(chart.scales.x.getValueForPixel(event.x)),
      scales: {
        x: timeAxis(shown.timeline.ns[0], shown.timeline.ns[shown.timeline.ns.length - 1]),
        y: bytesAxis(""),
      },
      plugins: {
        legend: legend(),
        tooltip: {
          filter: (at) => at.dataset.own[at.dataIndex] > 0,
          itemSort: (a, b) => b.datasetIndex - a.datasetIndex,
          callbacks: {
            title: (at) => (at.length ? words.time(at[0].parsed.x) : ""),
            label: (at) => at.dataset.label + ": " + words.bytes(at.dataset.own[at.dataIndex]),
          },
        },
      },
    }),
  }), [moments]);

  if (device.fragmentation && device.fragmentation.timeline)
    report.chart("chart-fragments", () => {
      const f = device.fragmentation.timeline;
      const set = (label, values, colour, more) => Object.assign({
        label, borderColor: colour, backgroundColor: colour, borderWidth: 2, pointRadius: 0, pointStyle: "line",
        stepped: true, data: f.ns.map((x, i) => ({ x, y: values[i] })),
      }, more);
      return {
        type: "line",
        data: { datasets: [
          set("taken from the device", f.reserved, theme.dark ? orange : red, { borderDash: [8, 4] }),
          set("in blocks", f.allocated, theme.dark ? sky : blue, {}),
        ] },
        options: options({
          parsing: false, normalized: true, interaction: { mode: "index", intersect: false },
          scales: { x: timeAxis(f.ns[0], f.ns[f.ns.length - 1]), y: bytesAxis("") },
          plugins: {
            legend: legend(),
            tooltip: { callbacks: {
              title: (at) => (at.length ? words.time(at[0].parsed.x) : ""),
              label: (at) => at.dataset.label + ": " + words.bytes(at.parsed.y),
            } },
          },
        }),
      };
    });

  /* ---- intervals ---- */

  const known = behaviours.filter((b) => data.intervals.of && (data.intervals.of[b.name] || {}).count > 0);
  const binEnd = 2 ** (1 / 8); /* bins are an eighth of an octave */

  report.chart("chart-cdf", () => ({
    type: "scatter",
    data: { datasets: known.map((b) => {
      const of = data.intervals.of[b.name];
      let upto = 0;
      const points = [{ x: of.bins.length ? of.bins[0][0] : 1, y: 0 }];
      for (const [from, count] of of.bins) {
        upto += count;
        points.push({ x: from * binEnd, y: upto / of.count });
      }
      return {
        label: b.title, data: points, showLine: true, borderColor: colourOf(b), backgroundColor: colourOf(b),
        borderWidth: 2, borderDash: b.dash, pointRadius: 0, pointStyle: "line", stepped: true,
      };
    }) },
    options: options({
      scales: {
        x: logAxis("no longer than", short, 10),
        y: axis("", { max: 1, ticks: { color: theme.soft, callback: (v) => Math.round(100 * v) + " %" } }),
      },
      plugins: {
        legend: legend(),
        tooltip: { callbacks: { label: (at) =>
          at.dataset.label + ": " + percent(at.parsed.y) + " within " + words.time(at.parsed.x) } },
      },
    }),
  }));

  /* Counts of all bins of a range, smoothed over half an octave. */
  function density(of, first, last) {
    const counts = new Array(last - first + 1).fill(0);
    for (const [from, count] of of.bins) counts[Math.round(Math.log2(from) * 8) - first] += count;
    const kernel = [1, 2, 3, 2, 1];
    return counts.map((_, i) => kernel.reduce((sum, w, k) => sum + w * (counts[i + k - 2] || 0), 0));
  }

  function violins(canvas) {
    const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const c = canvas.getContext("2d");
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, width, height);
    c.font = "12px system-ui, sans-serif";
    const all = known.flatMap((b) => data.intervals.of[b.name].bins.map((bin) => Math.round(Math.log2(bin[0]) * 8)));
    const first = Math.min(...all) - 3, last = Math.max(...all) + 4;
    const left = 58, top = 6, bottom = height - 44;
    const yOf = (ns) => bottom - (Math.log2(ns) * 8 - first) / (last - first) * (bottom - top);
    c.strokeStyle = theme.line;
    c.fillStyle = theme.soft;
    c.textBaseline = "middle";
    for (let power = Math.ceil(first / 8 * Math.log10(2)); 10 ** power <= 2 ** (last / 8); power++) {
      const y = Math.round(yOf(10 ** power)) + 0.5, label = short(10 ** power);
      c.beginPath();
      c.moveTo(left, y);
      c.lineTo(width, y);
      c.stroke();
      c.fillText(label, left - 8 - c.measureText(label).width, y);
    }
    const room = (width - left) / known.length;
    known.forEach((b, i) => violin(c, b, { first, last, middle: left + room * (i + 0.5), half: room * 0.42, yOf, bottom }));
  }

  function violin(c, b, at) {
    const of = data.intervals.of[b.name], shape = density(of, at.first, at.last), most = Math.max(...shape);
    const y = (bin) => at.yOf(2 ** ((bin + 0.5) / 8));
    c.beginPath();
    for (let i = 0; i < shape.length; i++) c.lineTo(at.middle - shape[i] / most * at.half, y(at.first + i));
    for (let i = shape.length; i-- > 0;) c.lineTo(at.middle + shape[i] / most * at.half, y(at.first + i));
    c.closePath();
    c.fillStyle = colourOf(b) + "88";
    c.strokeStyle = colourOf(b);
    c.lineWidth = 1.5;
    c.fill();
    c.stroke();
    const q = of.quantiles_ns;
    c.fillStyle = theme.text;
    c.fillRect(at.middle - 3, at.yOf(q.p75), 6, Math.max(at.yOf(q.p25) - at.yOf(q.p75), 1));
    c.beginPath();
    c.arc(at.middle, at.yOf(q.p50), 5, 0, 2 * Math.PI);
    c.fillStyle = theme.ground;
    c.fill();
    c.strokeStyle = theme.text;
    c.stroke();
    c.textAlign = "center";
    c.fillStyle = theme.text;
    const [one, two] = b.title.split(", ");
    c.fillText(one + ",", at.middle, at.bottom + 16);
    c.fillText(two, at.middle, at.bottom + 32);
    c.textAlign = "start";
  }

  const violinCanvas = document.getElementById("chart-violins");
  if (violinCanvas && known.length) {
    report.painted(() => violins(violinCanvas));
    new ResizeObserver(() => violins(violinCanvas)).observe(violinCanvas.parentElement);
  }

  function swapLine() {
    const { h2d_bytes_per_s: back, d2h_bytes_per_s: out, scatter, outliers } = data.intervals;
    const ns = [...scatter.map((p) => p[0]), ...outliers.map((o) => o.ns)].filter((v) => v > 0);
    if (!(back > 0) || !(out > 0) || !ns.length) return [];
    const most = (v) => v * 1e-9 / (1 / back + 1 / out);
    const from = Math.max(Math.min(...ns), 1e9 * (1 / back + 1 / out)), to = Math.max(...ns);
    return [{
      type: "scatter", label: "S_max: can leave and return", showLine: true, borderColor: theme.text,
      backgroundColor: theme.text, borderWidth: 1.5, borderDash: [10, 4, 2, 4], pointRadius: 0, pointStyle: "line",
      data: [from, Math.max(to, from * 2)].map((x) => ({ x, y: most(x) })), order: 0,
    }];
  }

  function named(o) {
    return { x: Math.max(o.ns, 1), y: Math.max(o.bytes, 1), o };
  }

  report.chart("chart-scatter", () => ({
    type: "scatter",
    data: { datasets: [
      ...known.map((b) => ({
        label: b.title, pointStyle: b.point, pointRadius: 2.5, borderColor: colourOf(b), backgroundColor: colourOf(b) + "66",
        borderWidth: 1, order: 2, behaviour: b.number,
        data: data.intervals.scatter.filter((p) => p[2] === b.number)
          .map((p) => ({ x: Math.max(p[0], 1), y: Math.max(p[1], 1) })),
      })),
      {
        label: "most could be moved", pointStyle: "rectRot", pointRadius: 6, borderWidth: 2, order: 1,
        borderColor: theme.text, backgroundColor: "transparent", data: data.intervals.outliers.slice(0, 24).map(named),
      },
      ...swapLine(),
    ] },
    options: options({
      scales: { x: logAxis("interval", short, 10), y: logAxis("bytes of the block", words.bytes, 32) },
      plugins: {
        legend: legend(),
        tooltip: { callbacks: { label: (at) => {
          const o = at.raw.o, base = words.bytes(at.parsed.y) + " for " + words.time(at.parsed.x);
          return o ? [base + ", " + o.behaviour, (o.category || "") + " " + (o.what || ""), "until " + (o.operator || "?")]
            : at.dataset.label + ": " + base;
        } } },
      },
    }),
  }));

  /* ---- parts, records, iterations ---- */

  const parts = device.parts.slice(0, 16);
  report.chart("chart-parts", () => ({
    type: "bar",
    data: { labels: parts.map((p) => p.part || "no part"), datasets: categoryBars([], parts.map((p) => p.bytes), true) },
    options: options({
      indexAxis: "y",
      scales: {
        x: bytesAxis("", { stacked: true }),
        y: axis("", { stacked: true, ticks: { color: theme.text, autoSkip: false }, grid: { display: false } }),
      },
      plugins: {
        legend: legend(),
        tooltip: { callbacks: { label: (at) => at.dataset.label + ": " + words.bytes(at.raw) } },
      },
    }),
  }));

  const sized = data.sides.every((s) => s.batch && s.batch.size > 0);
  const sides = sized ? [...data.sides].sort((a, b) => a.batch.size - b.batch.size) : data.sides;
  report.chart("chart-batch", () => ({
    type: "bar",
    data: { labels: sides.map((s) => s.label), datasets: categoryBars([], sides.map((s) => s.peak), false) },
    options: options({
      scales: {
        x: axis("", { stacked: true, ticks: { color: theme.text }, grid: { display: false } }),
        y: bytesAxis("", { stacked: true }),
      },
      plugins: {
        legend: legend(),
        tooltip: { callbacks: { label: (at) => at.dataset.label + ": " + words.bytes(at.raw) } },
      },
    }),
  }));

  report.chart("chart-fits", () => {
    const points = data.sides.filter((s) => s.batch && s.batch.size > 0).map((s) => ({ x: s.batch.size, y: s.peak_bytes }));
    const sets = [{
      type: "scatter", label: "measured", data: points, pointStyle: "rectRot", pointRadius: 6, borderWidth: 2,
      borderColor: theme.text, backgroundColor: theme.ground, order: 0,
    }];
    const fit = data.fit || {};
    if (fit.bytes_per_sample > 0) {
      const most = Math.max(...points.map((p) => p.x));
      const far = fit.that_fits > 0 && fit.that_fits < 20 * most ? Math.max(fit.that_fits, most) : 1.5 * most;
      sets.push({
        type: "scatter", label: "fitted", showLine: true, borderColor: theme.dark ? sky : blue,
        backgroundColor: theme.dark ? sky : blue, borderWidth: 2, pointRadius: 0, pointStyle: "line", order: 1,
        data: [0, far].map((x) => ({ x, y: fit.fixed_bytes + x * fit.bytes_per_sample })),
      });
      if (fit.capacity_bytes > 0 && fit.that_fits < 20 * most)
        sets.push({
          type: "scatter", label: "memory there is", showLine: true, borderColor: green, backgroundColor: green,
          borderWidth: 1.5, borderDash: [10, 4, 2, 4], pointRadius: 0, pointStyle: "line", order: 2,
          data: [0, far].map((x) => ({ x, y: fit.capacity_bytes })),
        });
    }
    return {
      type: "scatter",
      data: { datasets: sets },
      options: options({
        scales: { x: axis("batch size", { ticks: { color: theme.soft, callback: (v) => number(v) } }), y: bytesAxis("peak") },
        plugins: {
          legend: legend(),
          tooltip: { callbacks: { label: (at) => at.dataset.label + ": batch " + number(at.parsed.x) + ", " + words.bytes(at.parsed.y) } },
        },
      }),
    };
  });

  /* Stripes can be distinguished without colours. */
  function stripes(colour) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const c = tile.getContext("2d");
    c.fillStyle = colour;
    c.fillRect(0, 0, 6, 6);
    c.strokeStyle = theme.ground;
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(-1, 7);
    c.lineTo(7, -1);
    c.stroke();
    return c.createPattern(tile, "repeat");
  }

  report.chart("chart-iterations", () => {
    const rows = data.iterations, striped = stripes(red), plain = theme.dark ? grey : "#7b8794";
    const bars = (label, same, colour) => ({
      type: "bar", label, data: rows.map((r) => (Boolean(r[3]) === same ? r[1] / 1e6 : null)), backgroundColor: colour,
      borderWidth: 0, pointStyle: "rect", order: 1, barPercentage: 0.95, categoryPercentage: 0.95, grouped: false,
    });
    return {
      data: {
        labels: rows.map((_, i) => i + 1),
        datasets: [
          bars("time, as the others", true, plain), bars("time, different", false, striped),
          {
            type: "line", label: "holds at most", data: rows.map((r) => r[2]), yAxisID: "held", order: 0, spanGaps: true,
            borderColor: theme.dark ? sky : blue, backgroundColor: theme.dark ? sky : blue, borderWidth: 2,
            pointRadius: rows.length > 60 ? 0 : 2.5, pointStyle: "circle",
          },
        ].filter((set) => set.data.some((v) => v !== null)),
      },
      options: options({
        interaction: { mode: "index", intersect: false },
        onClick: (event, at) => { if (at.length) lives.show(rows[at[0].index][0] + rows[at[0].index][1] / 2); },
        scales: {
          x: axis("iteration", { ticks: { color: theme.soft, maxRotation: 0 }, grid: { display: false } }),
          y: axis("ms"),
          held: bytesAxis("", { position: "right", grid: { display: false } }),
        },
        plugins: {
          legend: legend(),
          tooltip: { callbacks: {
            title: (at) => (at.length ? "iteration " + at[0].label : ""),
            label: (at) => (at.raw === null ? null
              : at.dataset.label + ": " + (at.dataset.yAxisID === "held" ? words.bytes(at.raw) : number(at.raw) + " ms")),
          } },
        },
      }),
    };
  });

  report.start();
})();
