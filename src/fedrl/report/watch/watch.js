// Asks every second for what is new, keeps it, and shows the runs that are chosen. Episodes come as
// they are played (episodes.js).
"use strict";

const KEY = location.hash.slice(1) || sessionStorage.getItem("fedrl-watch-key") || "";
if (location.hash) sessionStorage.setItem("fedrl-watch-key", KEY);
const $ = (id) => document.getElementById(id);
const FIRST = ["eval/success", "eval/return", "eval/reward", "eval/accuracy", "train/return_last100", "train/return"];
const EVERY = 1000;
const AT_FIRST = 6;  // as many as there are colours

const kept = new Map();  // by a run's number: edition, rounds, metrics, clients
let runs = [], chosen = [], focus = null, metric = null;
const curves = new Curves($("chart")), byClient = new Curves($("client-chart"));
const map = new ClientMap($("map"), $("tip"));
const episodes = new EpisodePanel(KEY, ask);

async function ask(path) {
  const answer = await fetch(path, {headers: {"X-Fedrl-Key": KEY}});
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

async function follow(number) {
  const mine = kept.get(number) || {edition: -1, rounds: [], metrics: {}, clients: []};
  const query = `run=${number}&edition=${mine.edition}&rounds=${mine.rounds.length}&lines=${mine.clients.length}`;
  const news = await ask(`run?${query}`);
  if (news.since === 0) { mine.rounds = []; mine.metrics = {}; }
  if (news.lines === 0) mine.clients = [];
  const before = mine.rounds.length;
  mine.edition = news.edition;
  mine.rounds.push(...news.rounds);
  for (const [name, values] of Object.entries(news.metrics)) {
    const column = (mine.metrics[name] ||= []);
    while (column.length < before) column.push(null);
    column.push(...values);
  }
  for (const column of Object.values(mine.metrics)) while (column.length < mine.rounds.length) column.push(null);
  for (const line of news.clients) mine.clients.push(line);
  kept.set(number, mine);
  return news.rounds.length > 0 || news.clients.length > 0 || news.since === 0;
}

async function look() {
  try {
    renumber(await ask("runs"));
    if (focus === null && runs.length) { chosen = restored() || alike(); focus = chosen[0] ?? 0; }
    let fresh = false;
    for (const number of new Set([focus, ...chosen])) if (number < runs.length) fresh = (await follow(number)) || fresh;
    $("link").textContent = `${runs.length} run${runs.length === 1 ? "" : "s"}, ${runs.filter((r) => r.status === "running").length} running`;
    $("link").className = "";
    list();
    if (fresh || !curves.plot) show(); else tiles();
    episodes.follow(focus, runs[focus]?.path);
  } catch (error) {
    $("link").textContent = error.message === "Failed to fetch" ? "the server is gone: start fedrl watch again, this page goes on" : error.message;
    $("link").className = "lost";
  }
  setTimeout(look, document.hidden ? 5 * EVERY : EVERY);
}

// A server that was restarted numbers runs anew: what is shown goes by their folders.
function renumber(now) {
  const same = runs.every((run, number) => now[number]?.path === run.path);
  if (!same) {
    const place = (number) => now.findIndex((run) => run.path === runs[number]?.path);
    chosen = chosen.map(place).filter((number) => number >= 0);
    focus = focus === null || place(focus) < 0 ? chosen[0] ?? null : place(focus);
    kept.clear();
  }
  runs = now;
}

function restored() {
  const paths = JSON.parse(sessionStorage.getItem("fedrl-watch-chosen") || "[]");
  const found = paths.map((path) => runs.findIndex((run) => run.path === path)).filter((n) => n >= 0);
  return found.length ? found : null;
}

// At first: the newest run with something to see, one that goes on if there is any, and beside it the others of its recipe.
function alike() {
  const worth = (run) => 2 * (run.status === "running") + (run.round > 0);
  const best = Math.max(...runs.map(worth));
  const first = runs.findIndex((run) => worth(run) === best);
  const same = runs.map((_, number) => number).filter((number) => number !== first && runs[number].name === runs[first].name);
  return [first, ...same.sort((a, b) => worth(runs[b]) - worth(runs[a]))].slice(0, AT_FIRST);
}

// By chosen run, its style and shade. Runs that differ in their seed alone have one style and fade from seed to seed; the
// first such family of a method has the method's own, the others what is free.
function looks() {
  const families = new Map();
  for (const number of chosen) if (runs[number]) families.set(runs[number].family, runs[number].style);
  const own = new Map();
  for (const [family, at] of families) if (at !== null && ![...own.values()].includes(at)) own.set(family, at);
  const taken = new Set(own.values());
  let free = 0;
  for (const family of families.keys()) {
    if (own.has(family)) continue;
    while (taken.has(free)) free += 1;
    own.set(family, free++);
  }
  const seeds = runs.map((_, number) => number).sort((a, b) => runs[a].seed - runs[b].seed);
  return new Map(chosen.filter((number) => runs[number]).map((number) => {
    const alike = seeds.filter((other) => runs[other].family === runs[number].family);  // shown or not: a shade stays
    return [number, {index: own.get(runs[number].family), shade: alike.indexOf(number)}];
  }));
}

function choose(numbers) {
  chosen = numbers;
  sessionStorage.setItem("fedrl-watch-chosen", JSON.stringify(numbers.map((n) => runs[n].path)));
}

// `apart`: what differs from other runs of the same name, method and seed.
const label = (run) => `${run.method}${run.kind === "federated" ? "" : `, ${run.kind}`}, seed ${run.seed}${run.apart ? ` (${run.apart})` : ""}`;

function list() {
  const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const items = [];
  runs.forEach((run, number) => {
    const all = `${run.name} ${run.run} ${run.method} ${run.world} ${run.status}`.toLowerCase();
    if (!words.every((word) => all.includes(word))) return;
    const item = document.createElement("li");
    if (number === focus) item.className = "focus";
    const head = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = chosen.includes(number);
    box.setAttribute("aria-label", `show ${run.name}, ${label(run)}`);
    box.onchange = () => {
      choose(box.checked ? [...chosen, number] : chosen.filter((n) => n !== number));
      if (box.checked) focus = number;
      look_now();
    };
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    const look = looks().get(number);
    swatch.style.background = look ? style(look.index, look.shade).stroke : "transparent";
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = label(run);  // what differs: a recipe's runs share their name
    const badge = document.createElement("span");
    badge.className = `badge ${run.status}`;
    badge.textContent = run.status === "silent" ? `silent for ${time(run.quiet)}` : run.status;
    head.append(box, swatch, name, badge);
    const more = document.createElement("small");
    more.textContent = `${run.name} · round ${run.round} of ${run.rounds} · ${run.id}`;
    more.title = run.path;
    if (run.why) badge.title = run.why;
    const bar = document.createElement("div");
    bar.className = "bar";
    const done = document.createElement("span");
    done.style.width = `${run.rounds ? (100 * run.round) / run.rounds : 0}%`;
    bar.append(done);
    item.append(head, more, bar);
    item.onclick = (event) => {
      if (event.target === box || head.contains(event.target)) return;
      focus = number;
      if (!chosen.includes(number)) choose([...chosen, number]);
      look_now();
    };
    items.push(item);
  });
  $("runs").replaceChildren(...items);
}

async function look_now() {
  for (const number of new Set([focus, ...chosen])) await follow(number).catch(() => {});
  list();
  show();
  episodes.follow(focus, runs[focus]?.path);
}

function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60), Math.round(seconds % 60)];
  return h ? `${h} h ${String(m).padStart(2, "0")} min` : m ? `${m} min ${String(s).padStart(2, "0")} s` : `${s} s`;
}

function bytes(value) {
  if (value === undefined || value === null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${Number(value.toPrecision(3))} ${units[at]}`;
}

function last(number, name) {
  const column = (kept.get(number)?.metrics[name] || []).filter((v) => v !== null && v !== undefined);
  return column.at(-1);
}

function tiles() {
  const run = runs[focus];
  if (!run) return;
  $("title").textContent = `${run.name} · ${label(run)} · ${run.world} · ${run.id}`;
  const failed = (kept.get(focus)?.clients || []).filter((line) => line[2]).length;
  const found = {
    "round": `${run.round} of ${run.rounds}`, "status": run.status === "silent" ? `silent for ${time(run.quiet)}` : run.status,
    "time left": time(run.left), "sent up": bytes(last(focus, "comm/bytes_up")), "sent down": bytes(last(focus, "comm/bytes_down")),
    "clients": run.clients ?? "–", "failed updates": failed,
  };
  const epsilon = last(focus, "privacy/epsilon");
  if (epsilon !== undefined) found["ε spent"] = short(epsilon);
  if (run.why) found["why it stopped"] = run.why;
  if (metric && last(focus, metric) !== undefined) found[metric] = short(last(focus, metric));
  $("tiles").replaceChildren(...Object.entries(found).map(([name, value]) => {
    const tile = document.createElement("div"), term = document.createElement("dt"), what = document.createElement("dd");
    term.textContent = name;
    what.textContent = value;
    tile.append(term, what);
    return tile;
  }));
}

function fill(select, names, wanted) {
  const have = [...select.options].map((option) => option.value);
  if (JSON.stringify(have) !== JSON.stringify(names)) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
  if (names.includes(wanted)) select.value = wanted;
  return select.value;
}

function show() {
  const shown = chosen.filter((number) => kept.has(number) && runs[number]);
  const names = [...new Set(shown.flatMap((number) => Object.keys(kept.get(number).metrics)))].sort();
  if (!metric || !names.includes(metric)) metric = FIRST.find((name) => names.includes(name)) || names[0];
  metric = fill($("metric"), names, metric);
  const weight = Number($("smooth").value);
  const several = new Set(shown.map((number) => runs[number].name)).size > 1;
  const lines = shown.map((number) => ({
    label: `${several ? `${runs[number].name}: ` : ""}${label(runs[number])}`, ...looks().get(number),
    x: kept.get(number).rounds, y: smoothed(kept.get(number).metrics[metric] || [], weight),
  }));
  if (lines.length) curves.draw(lines, {log: $("log").checked});
  tiles();
  clients();
}

let asked = "";
async function clients() {
  const mine = kept.get(focus), run = runs[focus];
  if (!mine || !run) return;
  const most = Math.max(0, ...mine.clients.slice(-5000).map((line) => line[1])) + 1;
  const count = Math.max(most, Number(run.clients) || 0);
  map.draw(mine.clients, Math.min(count, 2000), Math.max(run.round, 1));
  const cohort = mine.clients.filter((line) => line[0] === run.round);
  $("cohort").textContent = cohort.length
    ? `${count} clients; round ${run.round}: ${cohort.length} in the cohort, ${cohort.filter((line) => line[2]).length} failed.`
    : `${count} clients.`;
  const why = new Map();
  for (const line of mine.clients) if (line[2]) why.set(line[2], (why.get(line[2]) || 0) + 1);
  $("failures").replaceChildren(...[...why].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([reason, times]) => {
    const item = document.createElement("li");
    item.textContent = `${times} × ${reason}`;
    return item;
  }));
  const wanted = $("client-metric").value;
  const mark = `${focus}/${mine.edition}/${mine.clients.length}/${wanted}`;
  if (mark === asked) return;
  asked = mark;
  try {
    const told = await ask(`clients?run=${focus}&metric=${encodeURIComponent(wanted)}`);
    const name = fill($("client-metric"), told.metrics, wanted);
    if (name && name !== wanted) { asked = ""; return clients(); }
    const lines = Object.entries(told.lines).slice(0, 200).map(([client, [x, y]], index) => ({label: `client ${client}`, index, x, y}));
    $("client-chart").hidden = !lines.length;
    if (lines.length) byClient.draw(lines, {log: false});
  } catch { asked = ""; }
}

function csv() {
  const shown = chosen.filter((number) => kept.has(number));
  const rows = ["run,round,metric,value"];
  for (const number of shown) {
    const mine = kept.get(number);
    (mine.metrics[metric] || []).forEach((value, i) => {
      if (value !== null && value !== undefined) rows.push(`"${runs[number].run}",${mine.rounds[i]},"${metric}",${value}`);
    });
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([rows.join("\n") + "\n"], {type: "text/csv"}));
  link.download = `${metric.replaceAll("/", "_")}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}

$("metric").onchange = () => { metric = $("metric").value; show(); };
$("smooth").oninput = show;
$("log").onchange = show;
$("find").oninput = list;
$("csv").onclick = csv;
$("client-metric").onchange = () => { asked = ""; clients(); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { show(); });
look();
