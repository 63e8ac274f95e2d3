// A report's panels as charts: values under the pointer, zoom, groups that can be hidden, smoothing.
// Where this does not run, and on paper, the picture in the same place is seen.
"use strict";

const charts = [];
const hidden = new Set();  // names of groups

const percent = (value) => (value === null || value === undefined ? "–" : `${Number((100 * value).toFixed(1))}%`);

const few = (value) => (value === null || value === undefined ? "–" : short(Number(value.toPrecision(4))));

function prefixed(value, units) {
  let at = 0;
  while (Math.abs(value) >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${Number(value.toPrecision(4))}${units[at]}`;
}

const counted = (value) => prefixed(value, ["", "k", "M", "G", "T"]);
const bytes = (value) => prefixed(value, [" B", " kB", " MB", " GB", " TB"]);

// The value of a line that lies nearest to the pointer: lines need not share their points.
function nearest(plot, series, index) {
  const values = plot.data[series];
  for (let away = 0; away < values.length; away += 1) {
    if (values[index - away] !== undefined && values[index - away] !== null) return index - away;
    if (values[index + away] !== undefined && values[index + away] !== null) return index + away;
  }
  return index;
}

// Room for the points at an axis' ends.
function beside(plot, low, high) {
  const pad = 0.06 * (high - low || 1);
  return [low - pad, high + pad];
}

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.data = JSON.parse(figure.querySelector("script").textContent);
    this.place = document.createElement("div");
    this.place.className = "chart";
    this.place.setAttribute("aria-hidden", "true");  // the picture's words say it
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    figure.append(this.place);
    if (this.data.legend) figure.append(this.key());
    figure.classList.add("live");
    this.draw();
    new ResizeObserver(() => this.plot.setSize(this.size())).observe(figure);
  }

  // Names of lines that no legend of the page has.
  key() {
    const key = document.createElement("figcaption");
    key.className = "key";
    key.setAttribute("aria-hidden", "true");
    key.append(...this.data.lines.map(({name, style: index}) => {
      const entry = document.createElement("span"), mark = document.createElement("i");
      mark.style.background = style(index).stroke;
      entry.append(mark, name);
      return entry;
    }));
    return key;
  }

  size() { return {width: Math.max(260, this.figure.clientWidth), height: 250}; }

  // Lines with their bands' ends: [mean, low, high] of each, on common points.
  columns(weight) {
    const lines = this.data.lines.flatMap(({x, y, low, high}) =>
      [y, low || [], high || []].map((values) => ({x, y: smoothed(values, this.data.points ? 0 : weight)})));
    const start = this.data.start;
    if (start !== null) {
      const all = this.data.lines.flatMap((line) => line.x);
      lines.push({x: [Math.min(...all), Math.max(...all)], y: [start, start]});
    }
    return aligned(lines);
  }

  draw() {
    if (this.plot) this.plot.destroy();
    const {data} = this, ink = colour("--ink"), grid = {stroke: colour("--line"), width: 1};
    const say = data.share ? percent : few, along = data.bytes ? bytes : counted;
    const series = [{label: data.x}], bands = [];
    for (const line of data.lines) {
      const at = series.length, look = style(line.style), show = !hidden.has(line.name);
      series.push(
        {label: line.name, ...look, width: 1.8, spanGaps: true, show, points: {show: line.x.length === 1}, ...(data.points ? {stroke: "transparent"} : {})},
        ...["low", "high"].map((end) => ({label: `${line.name} ${end}`, stroke: "transparent", width: 0, spanGaps: true, show, points: {show: false}})),
      );
      if (line.low && !data.points) bands.push({series: [at + 2, at + 1], fill: `${look.stroke}33`});
    }
    if (data.start !== null) series.push({label: "round 0", stroke: ink, dash: [2, 3], width: 1, spanGaps: true, points: {show: false}});
    const within = (plot, low, high) => {
      if (low === null) return [0, 1];
      if (data.room) { low = Math.max(low, data.room[0]); high = Math.min(high, data.room[1]); }
      const pad = 0.05 * (high - low || Math.abs(high) || 1);
      return data.share ? [Math.max(low - pad, -0.02), Math.min(high + pad, 1.02)] : [low - pad, high + pad];
    };
    this.plot = new uPlot({
      ...this.size(),
      title: data.title,
      scales: {x: {time: false, ...(data.points ? {range: beside} : {})}, y: data.log ? {distr: 3} : {range: within}},
      axes: [
        {stroke: ink, grid, label: data.x, labelSize: 20, size: 34, ...(data.x === "round" ? {incrs: WHOLE} : {}), values: (_, ticks) => ticks.map(along)},
        {stroke: ink, grid, size: 58, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : say(tick)))},
      ],
      legend: {show: false},
      cursor: {sync: {key: data.x}, dataIdx: nearest, points: {size: 6}},
      series,
      bands,
      hooks: {setCursor: [(plot) => this.tell(plot, say, along)], draw: data.points ? [(plot) => this.bars(plot)] : []},
    }, this.columns(smoothing()), this.place);
    this.figure.append(this.tip);
    this.plot.over.addEventListener("mouseleave", () => { this.tip.hidden = true; });
  }

  // Points with their bars, a little beside each other, and dots where nothing was measured.
  bars(plot) {
    const {ctx} = plot, unit = devicePixelRatio, lines = this.data.lines;
    const {left, top, width, height} = plot.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    lines.forEach((line, number) => {
      if (hidden.has(line.name)) return;
      const aside = 4 * unit * (number - (lines.length - 1) / 2);
      const place = (value, i) => [plot.valToPos(line.x[i], "x", true) + aside, plot.valToPos(value, "y", true)];
      ctx.strokeStyle = ctx.fillStyle = style(line.style).stroke;
      ctx.lineWidth = unit;
      ctx.setLineDash([2 * unit, 3 * unit]);
      ctx.beginPath();
      line.y.forEach((value, i) => { if (value !== null) ctx.lineTo(...place(value, i)); });
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.lineWidth = 2 * unit;
      line.y.forEach((value, i) => {
        if (value === null) return;
        ctx.beginPath();
        ctx.arc(...place(value, i), 3.5 * unit, 0, 2 * Math.PI);
        ctx.fill();
        if (!line.low || line.low[i] === null) return;
        ctx.beginPath();
        ctx.moveTo(...place(line.low[i], i));
        ctx.lineTo(...place(line.high[i], i));
        ctx.stroke();
      });
    });
    ctx.restore();
  }

  // Only the chart under the pointer tells; those of the same axis show where it is.
  tell(plot, say, along) {
    const {left, top, idxs, idx} = plot.cursor;
    if (idx === null || idx === undefined || left < 0 || !plot.over.matches(":hover")) { this.tip.hidden = true; return; }
    const rows = this.data.lines.flatMap((line, number) => {
      const at = 3 * number + 1, i = idxs[at];
      if (hidden.has(line.name) || i === null || i === undefined) return [];
      const value = plot.data[at][i], low = plot.data[at + 1][i], high = plot.data[at + 2][i];
      if (value === undefined || value === null) return [];
      const span = low === undefined || low === null ? "" : ` (${say(low)} to ${say(high)})`;
      return [{name: line.name, text: `${say(value)}${span}`, look: style(line.style).stroke, value}];
    }).sort((a, b) => b.value - a.value);
    const head = document.createElement("strong");
    head.textContent = `${this.data.x} ${along(plot.data[0][idx])}`;
    this.tip.replaceChildren(head, ...rows.map(({name, text, look}) => {
      const row = document.createElement("span"), mark = document.createElement("i");
      mark.style.background = look;
      row.append(mark, `${name}: ${text}`);
      return row;
    }));
    this.tip.hidden = false;
    // Beside the pointer, on the side that has more room, and never beyond the page's edge.
    const at = plot.over.offsetLeft + left, wide = this.tip.offsetWidth, room = this.figure.clientWidth;
    const beside = at > room / 2 ? at - wide - 12 : at + 12;
    this.tip.style.left = `${Math.max(0, Math.min(beside, room - wide))}px`;
    this.tip.style.top = `${this.place.offsetTop + plot.over.offsetTop + Math.min(top, plot.over.clientHeight / 2)}px`;
  }

  smooth() { this.plot.setData(this.columns(smoothing())); }

  show(name, shown) {
    this.data.lines.forEach((line, number) => {
      if (line.name === name) for (const end of [1, 2, 3]) this.plot.setSeries(3 * number + end, {show: shown});
    });
  }
}

function smoothing() {
  return Number(document.getElementById("smooth").value);
}

// The legend's entries hide and show a group everywhere.
function toggles() {
  for (const button of document.querySelectorAll("button[data-group]")) {
    button.disabled = false;
    button.onclick = () => {
      const name = button.dataset.group, shown = hidden.has(name);
      if (shown) hidden.delete(name); else hidden.add(name);
      for (const same of document.querySelectorAll("button[data-group]")) {
        if (same.dataset.group === name) same.setAttribute("aria-pressed", String(shown));
      }
      for (const chart of charts) chart.show(name, shown);
    };
  }
}

for (const figure of document.querySelectorAll("figure.panel")) charts.push(new Chart(figure));
if (charts.length) {
  document.getElementById("tools").hidden = false;
  document.getElementById("smooth").oninput = () => charts.forEach((chart) => chart.smooth());
  toggles();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.draw()));
