/*
 * Shared by the charts of all report pages: the data in #data, and the colours, axes and
 * legends for Chart.js. The script of a page follows this one and calls start(). The page is
 * complete without scripts: each chart has a table of the same figures beside it.
 *
 * The colours are Okabe and Ito's palette, which colour-blind people can distinguish. They follow
 * the reader's light or dark mode; printed charts are light.
 */
const report = (function () {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const colours = {
    blue: "#0072b2", sky: "#56b4e9", orange: "#e69f00", red: "#d55e00", green: "#009e73",
    pink: "#cc79a7", yellow: "#f0e442", grey: "#999999",
  };
  const light = { text: "#1d2329", soft: "#59636e", line: "#d5dae0", ground: "#f5f7f9", dark: false };
  const dark = { text: "#e6eaee", soft: "#9da7b1", line: "#343c45", ground: "#1c2228", dark: true };
  const wantsDark = window.matchMedia("(prefers-color-scheme: dark)");
  const theme = Object.assign({}, light);
  const makers = [], charts = [], painters = [];

  function number(value) {
    const digits = Math.abs(value) < 9.995 ? 2 : Math.abs(value) < 99.95 ? 1 : 0;
    return value.toLocaleString("en", { maximumFractionDigits: digits });
  }

  /* The unit for times of this size: the factor from seconds, and its name. */
  function unit(seconds) {
    if (seconds < 1e-3) return [1e6, "us"];
    return seconds < 1 ? [1e3, "ms"] : [1, "s"];
  }

  function percent(value) {
    return (100 * value).toFixed(1) + " %";
  }

  function axis(title, more) {
    return Object.assign({
      title: { display: Boolean(title), text: title, color: theme.soft },
      ticks: { color: theme.soft, callback: (v) => number(v) },
      grid: { color: theme.line, borderColor: theme.line },
      beginAtZero: true,
    }, more);
  }

  function options(more) {
    return Object.assign({
      animation: false,
      maintainAspectRatio: false,
      interaction: { mode: "nearest", intersect: false },
    }, more);
  }

  function legend(more) {
    return Object.assign({
      position: "bottom",
      labels: {
        color: theme.text, usePointStyle: true, boxWidth: 8, boxHeight: 8, padding: 12,
        filter: (item, chart) => !chart.datasets[item.datasetIndex].quiet,
      },
    }, more);
  }

  /* Writes each bar's text, made from its value by its data set, into bars with enough space. */
  const labels = {
    id: "labels",
    afterDatasetsDraw(chart) {
      const c = chart.ctx;
      chart.data.datasets.forEach((set, i) => {
        if (!set.labelled || !chart.isDatasetVisible(i)) return;
        chart.getDatasetMeta(i).data.forEach((bar, k) => {
          const text = set.labelled(set.data[k]);
          c.save();
          c.font = "600 13px system-ui, sans-serif";
          c.textAlign = "center";
          c.textBaseline = "middle";
          if (bar.width > c.measureText(text).width + 8) {
            c.fillStyle = set.on;
            c.fillText(text, bar.x - bar.width / 2, bar.y);
          }
          c.restore();
        });
      });
    },
  };

  /* Draws the chart of a canvas, if the page has it, now and whenever colours change. */
  function chart(id, configuration, plugins) {
    const canvas = document.getElementById(id);
    if (canvas) makers.push([canvas, configuration, plugins || []]);
  }

  /* Registers a canvas not drawn by Chart.js: `paint` is called whenever colours change. */
  function painted(paint) {
    painters.push(paint);
  }

  function draw(chosen) {
    Object.assign(theme, chosen);
    while (charts.length) charts.pop().destroy();
    for (const [canvas, configuration, plugins] of makers) {
      const made = configuration();
      made.plugins = plugins;
      charts.push(new Chart(canvas, made));
    }
    for (const paint of painters) paint();
  }

  /* Makes a labelled choice between [key, name] pairs. */
  function choice(text, pairs, value, changed) {
    const select = document.createElement("select"), label = document.createElement("label");
    for (const [key, name] of pairs) select.add(new Option(name, key, key === value, key === value));
    select.addEventListener("change", () => changed(select.value));
    label.append(text + " ", select);
    return label;
  }

  function redraw() {
    draw(Object.assign({}, theme));
  }

  function start() {
    const current = () => (wantsDark.matches ? dark : light);
    wantsDark.addEventListener("change", () => draw(current()));
    window.addEventListener("beforeprint", () => draw(light));
    window.addEventListener("afterprint", () => draw(current()));
    draw(current());
  }

  return {
    data, colours, theme, number, unit, percent, axis, options, legend, labels, chart, painted, choice,
    redraw, start,
  };
})();
