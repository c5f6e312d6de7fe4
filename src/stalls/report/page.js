/*
 * Draws the charts of a page about stalls. Lines differ in dashes and points as well as in
 * colour.
 */
(function () {
  "use strict";
  const { data, theme, number, percent, axis, options, legend } = report;
  const { blue, sky, orange, red, green, pink } = report.colours;
  const parts = [
    { name: "computing", colour: blue, on: "#fff" },
    { name: "copying to the GPU", colour: sky, on: "#000" },
    { name: "waiting for preparation", colour: orange, on: "#000" },
    { name: "waiting for storage", colour: red, on: "#000" },
  ];

  /* Whiskers of measured points: `low` and `high` of their data. */
  const whiskers = {
    id: "whiskers",
    afterDatasetsDraw(chart) {
      const c = chart.ctx, y = chart.scales.y;
      chart.data.datasets.forEach((set, i) => {
        if (!set.whiskers || !chart.isDatasetVisible(i)) return;
        chart.getDatasetMeta(i).data.forEach((point, k) => {
          const at = set.data[k];
          if (at.low === null || at.high === null) return;
          const low = y.getPixelForValue(at.low), high = y.getPixelForValue(at.high);
          c.save();
          c.strokeStyle = theme.text;
          c.lineWidth = 1.5;
          c.beginPath();
          c.moveTo(point.x, low);
          c.lineTo(point.x, high);
          for (const end of [low, high]) {
            c.moveTo(point.x - 4, end);
            c.lineTo(point.x + 4, end);
          }
          c.stroke();
          c.restore();
        });
      });
    },
  };

  function chart(id, configuration) {
    report.chart(id, configuration, [whiskers, report.labels]);
  }

  /* ---- parts of a batch's time ---- */

  chart("chart-split", () => ({
    type: "bar",
    data: {
      labels: data.split.rows.map((row) => row.name),
      datasets: parts.map((part, i) => ({
        label: part.name, data: data.split.rows.map((row) => row.values[i]),
        backgroundColor: part.colour, on: part.on, labelled: percent, borderColor: theme.ground, borderWidth: 1,
        pointStyle: "rect", quiet: i === 1 && !data.split.copy,
      })).filter((set) => set.data.some((share) => share > 0)),
    },
    options: options({
      indexAxis: "y",
      scales: {
        x: axis("share of the time", {
          stacked: true, max: 1, ticks: { color: theme.soft, callback: (v) => Math.round(100 * v) + " %" },
        }),
        y: axis("", { stacked: true, ticks: { color: theme.text }, grid: { display: false } }),
      },
      plugins: {
        legend: legend(),
        tooltip: { callbacks: { label: (at) => at.dataset.label + ": " + percent(at.raw) } },
      },
    }),
  }));

  chart("chart-ranks", () => ({
    type: "bar",
    data: {
      labels: data.ranks.map((rank) => rank.name),
      datasets: ["files on storage", "files in memory"].map((name, i) => ({
        label: name, data: data.ranks.map((rank) => rank.waits[i]), pointStyle: "rect",
        backgroundColor: [pink, green][i], borderColor: theme.ground, borderWidth: 1,
      })).filter((set) => set.data.some((share) => share !== null)),
    },
    options: options({
      scales: {
        x: axis("", { ticks: { color: theme.soft }, grid: { display: false } }),
        y: axis("blocked in next()", {
          suggestedMax: 0.1, ticks: { color: theme.soft, callback: (v) => Math.round(100 * v) + " %" },
        }),
      },
      plugins: {
        legend: legend(),
        tooltip: { callbacks: { label: (at) => at.dataset.label + ": " + percent(at.raw) } },
      },
    }),
  }));

  /* ---- effects of changes ---- */

  const shapes = [{ colour: blue, dark: sky, dash: [], point: "circle" },
                  { colour: red, dark: orange, dash: [2, 3], point: "triangle" }];
  const marks = ["rectRot", "rect", "star"];

  function curveSets(curve, i) {
    const shape = shapes[i % shapes.length];
    const colour = theme.dark ? shape.dark : shape.colour;
    const points = curve.points.map((p) => ({ x: p[0], y: p[1], low: p[2], high: p[3], beyond: p[4] }));
    const line = {
      type: "line", label: "predicted, " + curve.name, data: points, borderColor: colour,
      backgroundColor: colour, borderWidth: 2, borderDash: shape.dash, pointStyle: shape.point,
      pointRadius: 2.5, clip: false, order: 1,
      segment: { borderDash: (at) => (points[at.p1DataIndex].beyond ? [8, 6] : undefined) },
    };
    const edge = (key, fill) => ({
      type: "line", data: points.filter((p) => p.low !== null && p.high !== null)
        .map((p) => ({ x: p.x, y: p[key] })),
      fill, backgroundColor: colour + "26", borderWidth: 0, pointRadius: 0, pointHitRadius: 0,
      quiet: true, order: 2,
    });
    return [line, edge("low", false), edge("high", "-1")];
  }

  function measuredSets(measured) {
    const names = [...new Set(measured.map((m) => m.name))];
    return names.map((name, i) => ({
      type: "scatter", label: name, whiskers: true, clip: false, pointStyle: marks[i % marks.length],
      pointRadius: 6, borderColor: theme.text, backgroundColor: theme.ground, borderWidth: 2, order: 0,
      data: measured.filter((m) => m.name === name)
        .map((m) => ({ x: m.point[0], y: m.point[1], low: m.point[2], high: m.point[3] })),
    }));
  }

  /* A constant rate over x. */
  function level(name, value, xs) {
    return {
      type: "line", label: name, pointRadius: 0, pointStyle: "line", borderWidth: 1.5,
      borderColor: green, backgroundColor: green, borderDash: [10, 4, 2, 4], order: 3,
      data: [Math.min(...xs), Math.max(...xs)].map((x) => ({ x, y: value })),
    };
  }

  function curveChart(id, curves, x) {
    chart(id, () => {
      const sets = curves.curves.filter((c) => c.points.length).flatMap(curveSets);
      const all = curves.curves.flatMap((c) => c.points.map((p) => p[0]));
      if (data.device_rate !== null && all.length)
        sets.push(level("the " + data.processor + " alone (G)", data.device_rate, all));
      return {
        type: "line",
        data: { datasets: [...sets, ...measuredSets(curves.measured)] },
        options: options({
          scales: { x: axis(x.title, Object.assign({ type: "linear", beginAtZero: false }, x.more())),
                    y: axis("samples/s") },
          plugins: {
            legend: legend(),
            tooltip: {
              filter: (at) => !at.dataset.quiet,
              callbacks: {
                title: (at) => (at.length ? x.name(at[0].parsed.x) : ""),
                label: (at) => {
                  const p = at.raw;
                  const range = p.low == null || p.high == null ? ""
                    : " (" + number(p.low) + " to " + number(p.high) + ")";
                  return at.dataset.label + ": " + number(p.y) + "/s" + range +
                    (p.beyond ? ", extrapolated" : "");
                },
              },
            },
          },
        }),
      };
    });
  }

  curveChart("chart-cache", data.cache, {
    title: "share of the dataset in the cache",
    name: (x) => Math.round(100 * x) + " % cached",
    more: () => ({ min: 0, max: 1, ticks: { color: theme.soft, callback: (v) => Math.round(100 * v) + " %" } }),
  });
  curveChart("chart-cores", data.cores, {
    title: "cores of a host",
    name: (x) => x + (x === 1 ? " core" : " cores"),
    more: () => ({ min: 0, ticks: { color: theme.soft, precision: 0 } }),
  });

  /* ---- batch by batch ---- */

  const longest = Math.max(0, ...[data.cold, data.warm].filter(Boolean).flatMap((s) => s.batch_s));

  function timeline(id, segment) {
    if (!segment) return;
    chart(id, () => {
      const set = (name, colour, values) => ({
        label: name, data: values, backgroundColor: colour, borderColor: theme.ground,
        borderWidth: segment.wait_s.length > 60 ? 0 : 1, pointStyle: "rect",
        barPercentage: 1, categoryPercentage: 1,
      });
      return {
        type: "bar",
        data: {
          labels: segment.wait_s.map((_, i) => i + 1),
          datasets: [
            set("waits for the batch", pink, segment.wait_s.map((w) => 1000 * w)),
            set("trains", blue, segment.batch_s.map((b, i) => 1000 * (b - segment.wait_s[i]))),
          ],
        },
        options: options({
          interaction: { mode: "index", intersect: false },
          scales: {
            x: axis("batch", { stacked: true, ticks: { color: theme.soft }, grid: { display: false } }),
            y: axis("ms", { stacked: true, suggestedMax: 1000 * longest }),
          },
          plugins: {
            legend: legend(),
            tooltip: { callbacks: {
              title: (at) => (at.length ? "batch " + at[0].label : ""),
              label: (at) => at.dataset.label + ": " + number(at.raw) + " ms",
            } },
          },
        }),
      };
    });
  }
  timeline("chart-cold", data.cold);
  timeline("chart-warm", data.warm);

  /* ---- storage ---- */

  chart("chart-storage", () => {
    const depths = data.storage.depths;
    const sets = [{
      label: "measured", data: depths.map((d) => d[1] / 1e6), borderColor: theme.text,
      backgroundColor: theme.ground, pointStyle: "rectRot", pointRadius: 6, borderWidth: 2,
    }];
    if (data.storage.needed !== null)
      sets.push({
        label: "what the " + data.processor + " alone would use", pointRadius: 0,
        pointStyle: "line", data: depths.map(() => data.storage.needed / 1e6), borderColor: green,
        backgroundColor: green, borderWidth: 1.5, borderDash: [10, 4, 2, 4],
      });
    return {
      type: "line",
      data: { labels: depths.map((d) => d[0]), datasets: sets },
      options: options({
        scales: {
          x: axis("reads in flight", { type: "category", ticks: { color: theme.soft } }),
          y: axis("MB/s"),
        },
        plugins: {
          legend: legend(),
          tooltip: { callbacks: {
            title: (at) => (at.length ? at[0].label + " reads in flight" : ""),
            label: (at) => at.dataset.label + ": " + number(at.raw) + " MB/s",
          } },
        },
      }),
    };
  });

  report.start();
})();
