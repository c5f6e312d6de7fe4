/*
 * Draws the passes of a pipeline as a Gantt chart: a row for each GPU. Forward and backward passes
 * differ in lightness as well as in colour, versions of the weights in stripes.
 */
(function () {
  "use strict";
  const { data, theme, colours } = report;
  const canvas = document.getElementById("chart-gantt"), tip = document.getElementById("gantt-tip");
  const kinds = [
    { name: "forward", fill: colours.blue, text: "#fff" },
    { name: "backward", fill: colours.orange, text: "#000" },
    { name: "update", fill: colours.grey, text: "#000" },
  ];
  const left = 52, bottom = 26, gap = 4;

  function layout() {
    const width = canvas.clientWidth, height = canvas.clientHeight;
    const row = (height - bottom) / data.rows, scale = (width - left) / data.end;
    return { width, height, row, x: (s) => left + s * scale, scale };
  }

  function stripes(c, x, y, width, height) {
    c.save();
    c.beginPath();
    c.rect(x, y, width, height);
    c.clip();
    c.strokeStyle = theme.ground;
    c.lineWidth = 1.5;
    c.beginPath();
    for (let at = x - height; at < x + width; at += 8) {
      c.moveTo(at, y + height);
      c.lineTo(at + height, y);
    }
    c.stroke();
    c.restore();
  }

  function paintTask(c, l, task) {
    const [row, kind, , microbatch, version, begin, end] = task, style = kinds[kind];
    const x = l.x(begin), width = Math.max(l.x(Math.min(end, data.end)) - x - 1, 0.5);
    const y = row * l.row + gap / 2, height = l.row - gap, text = String(microbatch + 1);
    c.fillStyle = style.fill;
    c.fillRect(x, y, width, height);
    if (kind < 2 && version % 2 && width > 3) stripes(c, x, y, width, height);
    if (kind > 1 || c.measureText(text).width + 4 > width || height < 12) return;
    c.fillStyle = style.fill;
    c.fillRect(x + width / 2 - c.measureText(text).width / 2 - 2, y + height / 2 - 8,
      c.measureText(text).width + 4, 16);
    c.fillStyle = style.text;
    c.fillText(text, x + width / 2, y + height / 2);
  }

  function paint() {
    const ratio = window.devicePixelRatio || 1, l = layout(), c = canvas.getContext("2d");
    const [factor, name] = report.unit(data.end);
    canvas.width = l.width * ratio;
    canvas.height = l.height * ratio;
    c.scale(ratio, ratio);
    c.clearRect(0, 0, l.width, l.height);
    c.font = "12px system-ui, sans-serif";
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (const task of data.tasks) paintTask(c, l, task);
    c.fillStyle = theme.soft;
    for (let i = 0; i <= 5; i++) {
      c.textAlign = i < 5 ? "center" : "right";
      c.fillText(report.number(data.end * i / 5 * factor) + (i < 5 ? "" : " " + name),
        l.x(data.end * i / 5), l.height - bottom / 2);
    }
    c.textAlign = "left";
    for (let i = 0; i < data.rows; i++) c.fillText("GPU " + (i + 1), 0, (i + 0.5) * l.row);
  }

  canvas.addEventListener("mousemove", (event) => {
    const l = layout(), at = (event.offsetX - left) / l.scale, row = Math.floor(event.offsetY / l.row);
    const task = data.tasks.find((t) => t[0] === row && t[5] <= at && at < t[6]);
    tip.hidden = !task;
    if (!task) return;
    const [factor, name] = report.unit(data.end), long = report.number((task[6] - task[5]) * factor);
    tip.textContent = task[1] > 1
      ? "update after batch " + (task[3] + 1) + "\nmakes version " + task[4] + "\n" + long + " " + name
      : kinds[task[1]].name + " pass of microbatch " + (task[3] + 1) + "\nstage " + (task[2] + 1) +
        ", weights of version " + task[4] + "\n" + long + " " + name;
    tip.style.left = Math.min(event.offsetX + 12, l.width - 190) + "px";
    tip.style.top = Math.max(event.offsetY - 10, 0) + "px";
  });
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
  window.addEventListener("resize", paint);
  report.painted(paint);
  report.start();
})();
