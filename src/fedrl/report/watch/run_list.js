// The list of runs: a row per run, which stays the same element as long as its run is there, so that
// the focus, a click that has begun and what was scrolled to survive the news of every second.
"use strict";

const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };

const method = (run) => `${run.method}${run.kind === "federated" ? "" : `, ${run.kind}`}`;
const source = (run) => (run.variant ? method(run) : run.name);  // what a label does not say

// By the variant of a sweep. `apart`: what differs from other runs of the same name, method and seed.
const label = (run) => `${run.variant || method(run)}, seed ${run.seed}${run.apart ? ` (${run.apart})` : ""}`;

// A line's dashes, as a background.
const dashes = ({stroke, dash: [on, off]}) =>
  (on ? `repeating-linear-gradient(90deg, ${stroke} 0 ${on / 2}px, transparent ${on / 2}px ${(on + off) / 2}px)` : stroke);

function element(kind, name, ...inside) {
  const made = document.createElement(kind);
  if (name) made.className = name;
  made.append(...inside);
  return made;
}

class RunList {
  // `tick(path, on)`: its curve is wanted or not; `open(path)`: its numbers and clients are.
  constructor(place, tick, open) {
    this.place = place;
    this.tick = tick;
    this.open = open;
    this.rows = new Map();
  }

  row(path) {
    const box = element("input"), swatch = element("span", "swatch"), done = element("span");
    const name = element("span", "name"), badge = element("span", "badge"), more = element("small");
    box.type = "checkbox";
    box.onchange = () => this.tick(path, box.checked);
    const button = element("button", "", element("span", "head", name, badge), more, element("span", "bar", done));
    button.type = "button";
    button.onclick = () => this.open(path);
    const item = element("li", "", element("label", "", box, swatch), button);
    return {item, box, swatch, name, badge, more, done, button};
  }

  fill(row, run, look, chosen, focused) {
    row.item.className = focused ? "focus" : "";
    row.button.setAttribute("aria-current", focused);
    row.box.checked = chosen;
    row.box.setAttribute("aria-label", `show ${source(run)}, ${label(run)}`);
    row.swatch.style.background = look ? dashes(style(look.index, look.shade)) : "transparent";
    put(row.name, label(run));  // what differs: a recipe's runs share their name
    put(row.badge, run.status === "silent" ? `silent for ${time(run.quiet)}` : run.status);
    row.badge.className = `badge ${run.status}`;
    row.badge.title = run.why;
    put(row.more, `${source(run)} · round ${run.round} of ${run.rounds} · ${run.id}`);
    row.more.title = run.path;
    row.done.style.width = `${run.rounds ? (100 * run.round) / run.rounds : 0}%`;
  }

  // Those of `runs` that hold all the words; what is in its place is not moved.
  draw(runs, words, looks, chosen, focus) {
    const wanted = [];
    for (const [path, run] of runs) {
      const all = `${run.name} ${run.run} ${method(run)} ${label(run)} ${run.world} ${run.status}`.toLowerCase();
      if (!words.every((word) => all.includes(word))) continue;
      if (!this.rows.has(path)) this.rows.set(path, this.row(path));
      const row = this.rows.get(path);
      this.fill(row, run, looks.get(path), chosen.includes(path), path === focus);
      wanted.push(row.item);
    }
    for (const path of this.rows.keys()) if (!runs.has(path)) this.rows.delete(path);
    for (const item of [...this.place.children]) if (!wanted.includes(item)) item.remove();
    wanted.forEach((item, at) => {
      if (this.place.children[at] !== item) this.place.insertBefore(item, this.place.children[at] ?? null);
    });
  }
}
