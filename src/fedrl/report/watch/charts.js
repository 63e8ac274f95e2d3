// Curves of several runs over rounds: drawing only.
"use strict";

const STYLES = getComputedStyle(document.documentElement);
const colour = (name) => STYLES.getPropertyValue(name).trim();
const PALETTE = () => [0, 1, 2, 3, 4, 5].map((i) => colour(`--c${i}`));
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];  // rounds are counted
const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]];

const SHADES = ["", "b3", "80", "59"];  // how much of a colour is seen, from seed to seed

function style(index, shade = 0) {
  const palette = PALETTE();
  return {stroke: palette[index % palette.length] + SHADES[shade % SHADES.length], dash: DASHES[Math.floor(index / palette.length) % DASHES.length]};
}

const said = (value) => typeof value === "number";  // else nothing, or a word as "nan"

// An exponential mean that begins at the first value; a gap stays a gap.
function smoothed(values, weight) {
  if (!weight) return values;
  let mean = null;
  return values.map((value) => {
    if (!said(value)) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
}

// Lines [{label, index, x, y}] on common rounds: what uPlot wants.
function aligned(lines) {
  const all = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const at = new Map(all.map((x, i) => [x, i]));
  const columns = lines.map((line) => {
    const column = new Array(all.length).fill(undefined);
    line.x.forEach((x, i) => { const y = line.y[i]; if (said(y)) column[at.get(x)] = y; });
    return column;
  });
  return [all, ...columns];
}

function short(value) {
  if (!said(value)) return value ?? "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
  return String(Number(value.toPrecision(5)));
}

class Curves {
  constructor(place) {
    this.place = place;
    this.plot = null;
    this.shape = "";
    new ResizeObserver(() => this.resize()).observe(place);
  }

  size() { return {width: Math.max(280, this.place.clientWidth), height: 300}; }
  resize() { if (this.plot) this.plot.setSize(this.size()); }

  clear() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
    this.shape = "";
  }

  // A new picture only where the lines are others; else the same with more points, so that zoom and
  // hidden lines stay as they are.
  draw(lines, options) {
    const data = aligned(lines);
    const shape = JSON.stringify([lines.map((line) => [line.label, line.index, line.shade]), options, PALETTE()]);
    if (this.plot && shape === this.shape) {
      this.plot.setData(data, !this.zoomed);
      if (this.zoomed) this.plot.redraw();  // data that leave the scales alone are not drawn
      return;
    }
    this.clear();
    this.shape = shape;
    this.zoomed = false;
    const ink = colour("--ink"), grid = {stroke: colour("--line"), width: 1};
    const thin = lines.length > 12;
    this.plot = new uPlot({
      ...this.size(),
      scales: {x: {time: false}, y: {distr: options.log ? 3 : 1}},
      axes: [
        {stroke: ink, grid, label: "round", labelSize: 22, incrs: WHOLE},
        {stroke: ink, grid, size: 64, values: (_, ticks) => ticks.map((t) => (t === null ? "" : short(t)))},
      ],
      legend: {live: lines.length <= 24, show: lines.length <= 24},
      cursor: {focus: {prox: 24}},
      focus: {alpha: 0.25},
      series: [
        {label: "round", value: (_, round) => (round === null || round === undefined ? "" : round)},
        ...lines.map((line) => ({
          label: line.label, ...style(line.index, line.shade), width: thin ? 1 : 1.8, spanGaps: true,
          points: {show: (plot, at) => plot.data[at].filter(said).length === 1}, value: (_, v) => short(v),
        })),
      ],
      hooks: {setSelect: [() => { this.zoomed = true; }]},
    }, data, this.place);
    this.place.ondblclick = () => { this.zoomed = false; };
    for (const name of this.place.querySelectorAll(".u-legend .u-series:not(:first-child) th")) {
      name.tabIndex = 0;
      name.setAttribute("role", "button");
      name.onkeydown = (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        name.click();
      };
    }
  }
}
