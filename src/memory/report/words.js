/* Units, titles and colours of pages about memory; categories are numbered as in the data. */
report.words = (function () {
  "use strict";
  const { number, colours } = report;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

  function bytes(value) {
    let unit = 0;
    while (Math.abs(value) >= 999.5 && unit + 1 < units.length) {
      value /= 1024;
      unit++;
    }
    return (unit ? number(value) : Math.round(value)) + " " + units[unit];
  }

  function time(ns) {
    const size = Math.abs(ns);
    if (size < 999.5) return Math.round(ns) + " ns";
    if (size < 999.5e3) return number(ns / 1e3) + " \u00b5s";
    return size < 999.5e6 ? number(ns / 1e6) + " ms" : number(ns / 1e9) + " s";
  }

  /* A label of an axis whose ticks are `step` ns apart. */
  function moment(ns, step) {
    const [scale, name] = step >= 1e8 ? [1e9, " s"] : step >= 1e5 ? [1e6, " ms"] : [1e3, " \u00b5s"];
    const digits = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
    return (ns / scale).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + name;
  }

  const device = (name) => (name === "libraries" ? "host memory of libraries" : name);

  return {
    bytes, time, moment, device,
    categories: report.data.titles,
    fills: [colours.grey, colours.blue, colours.sky, colours.green, colours.yellow, colours.red, colours.orange, colours.pink],
    on: ["#000", "#fff", "#000", "#000", "#000", "#000", "#000", "#000"], /* text on them */
  };
})();
