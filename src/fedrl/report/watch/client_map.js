// One run's clients as a map: a row per client and a column per round. Where a run has more rounds
// than there is room for columns, a column has several, and is of a failure if one of them failed.
"use strict";

const LEAST = 2;  // pixels of a column
const SEEN = 4;   // pixels that a failure has at least

class ClientMap {
  // `tip` tells of the cell that is pointed to, else of the chosen one, which `mark` lies around and
  // `choose(cell)` is told of. A cell is {client, round}: whatever the columns are, it stays.
  // `called(client)` is its name.
  constructor(canvas, mark, tip, called, choose) {
    Object.assign(this, {canvas, mark, tip, called, chosen: choose, cell: null, lines: []});
    this.hint = tip.textContent;
    canvas.onmousemove = (event) => this.tell(this.under(event));
    canvas.onmouseleave = () => this.tell(this.cell);
    canvas.onclick = (event) => this.choose(this.under(event));
    canvas.onkeydown = (event) => this.key(event);
    new ResizeObserver(() => { if (this.rows && this.room() !== this.wide) this.paint(); }).observe(canvas.parentElement);
  }

  // Between the parent's edges and paddings.
  room() { return Math.max(28, this.canvas.parentElement.clientWidth - 14); }

  draw(lines, clients, rounds, cell) {
    Object.assign(this, {lines, rows: Math.max(1, clients), rounds: Math.max(1, rounds), cell});
    this.paint();
  }

  paint() {
    this.wide = this.room();
    this.each = Math.ceil(this.rounds / Math.floor(this.wide / LEAST));  // rounds of a column
    this.columns = Math.ceil(this.rounds / this.each);
    const wide = Math.min(14, Math.floor(this.wide / this.columns)), high = this.rows > 60 ? 4 : this.rows > 25 ? 7 : 12;
    this.size = {wide, high};
    const scale = window.devicePixelRatio || 1, gap = wide > SEEN ? 1 : 0;
    this.canvas.width = this.columns * wide * scale;
    this.canvas.height = this.rows * high * scale;
    this.canvas.style.width = `${this.columns * wide}px`;
    this.canvas.style.height = `${this.rows * high}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    for (const failed of [false, true]) {  // failures on top
      const width = failed ? Math.max(SEEN, wide - gap) : wide - gap, height = failed ? Math.max(SEEN, high - 1) : high - 1;
      pen.fillStyle = colour(failed ? "--bad" : "--c0");
      for (const [round, client, why] of this.lines) {
        if (Boolean(why) === failed) pen.fillRect(this.column(round) * wide, client * high, width, height);
      }
    }
    this.point();
  }

  column(round) { return Math.floor((round - 1) / this.each); }

  at(column, client) {
    const within = (value, count) => Math.max(0, Math.min(count - 1, value));
    return {client: within(client, this.rows), round: within(column, this.columns) * this.each + 1};
  }

  under(event) {
    return this.at(Math.floor(event.offsetX / this.size.wide), Math.floor(event.offsetY / this.size.high));
  }

  choose(cell) {
    this.cell = cell;
    this.point();
    if (cell) for (const one of [this.mark, this.tip]) one.scrollIntoView({block: "nearest"});
    this.chosen(cell);
  }

  key(event) {
    const {client, round} = this.cell || {client: 0, round: this.rounds}, column = this.column(round);
    const goes = {
      ArrowLeft: [column - 1, client], ArrowRight: [column + 1, client], ArrowUp: [column, client - 1],
      ArrowDown: [column, client + 1], Home: [0, client], End: [this.columns - 1, client],
    };
    if (event.key === "Escape") this.choose(null);
    else if (event.key in goes) this.choose(this.cell ? this.at(...goes[event.key]) : this.at(column, client));
    else return;
    event.preventDefault();
  }

  // The mark lies around the chosen cell.
  point() {
    this.mark.hidden = !this.cell;
    if (this.cell) {
      const {wide, high} = this.size, column = this.column(this.cell.round);
      Object.assign(this.mark.style, {
        left: `${this.canvas.offsetLeft + column * wide}px`, top: `${this.canvas.offsetTop + this.cell.client * high}px`,
        width: `${wide}px`, height: `${high}px`,
      });
    }
    this.tell(this.cell);
  }

  tell(cell) {
    if (!cell) return put(this.tip, this.hint);
    const column = this.column(cell.round), first = column * this.each + 1, last = Math.min(this.rounds, first + this.each - 1);
    const there = this.lines.filter(([round, client]) => client === cell.client && this.column(round) === column);
    const whys = [...new Set(there.map((line) => line[2]).filter(Boolean))].join("; ");
    const failed = there.filter((line) => line[2]).length;
    const part = first === last ? "took part" : `took part in ${new Set(there.map(([round]) => round)).size}`;
    const what = !there.length ? "not in the cohort" : !failed ? part : first === last ? `failed: ${whys}` : `${part}, ${failed} failed: ${whys}`;
    put(this.tip, `${this.called(cell.client)}, ${first === last ? `round ${first}` : `rounds ${first} to ${last}`}: ${what}`);
  }
}
