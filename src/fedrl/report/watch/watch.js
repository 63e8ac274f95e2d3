// Asks every second for what is new, keeps it, and shows the runs that are chosen, each of which goes
// by its folder's path. Episodes come as they are played (episodes.js).
"use strict";

const KEY = location.hash.slice(1) || sessionStorage.getItem("fedrl-watch-key") || "";
if (location.hash) sessionStorage.setItem("fedrl-watch-key", KEY);
const $ = (id) => document.getElementById(id);
const IN_TRAINING = ["train/return_last100", "train/return"];  // where nothing is evaluated
const EVERY = 1000;
const PATIENCE = 20 * EVERY;
const GONE = "the server is gone: start fedrl watch again, this page goes on";
const NO_RUNS = "no runs yet: they appear here when they begin";
const AT_FIRST = 6;  // as many as there are colours
const MOST_CLIENTS = 2000, MOST_CURVES = 200;  // that are drawn

const MEMORY = "fedrl-watch-view";
// What a person has set, which a page that is loaded again has; null is what nobody has said.
const view = {
  chosen: null, focus: null, metric: null, smooth: "0", log: false, client_metric: null, cell: null,
  ...JSON.parse(sessionStorage.getItem(MEMORY) || "{}"),
};

function remember(set) {
  Object.assign(view, set);
  sessionStorage.setItem(MEMORY, JSON.stringify(view));
}

const kept = new Map();    // by a run's path: edition, rounds, metrics, clients
const asking = new Map();  // by a run's path: the request for its news that is under way
let runs = new Map(), chosen = [], focus = null, metric = null, drawn = "";
const curves = new Curves($("chart")), byClient = new Curves($("client-chart"));
const map = new ClientMap($("map"), $("cell"), $("tip"), called, (cell) => {
  remember({cell: cell && {...cell, run: focus}});
  pickOut();
});
const episodes = new EpisodePanel(KEY, ask);
const rows = new RunList($("runs"), tick, open);

async function ask(path) {
  let answer, value;
  try {
    answer = await fetch(path, {headers: {"X-Fedrl-Key": KEY}, signal: AbortSignal.timeout(PATIENCE)});
    value = await answer.json();
  } catch {
    throw new Error(GONE);
  }
  if (!answer.ok) throw new Error(value.error);
  return value;
}

// One request at a time: who asks for the same run meanwhile waits for the same news.
function follow(path) {
  if (!asking.has(path)) asking.set(path, take(path).finally(() => asking.delete(path)));
  return asking.get(path);
}

async function take(path) {
  const mine = kept.get(path) || {edition: -1, rounds: [], metrics: {}, clients: []};
  const said = {run: path, edition: mine.edition, rounds: mine.rounds.length, lines: mine.clients.length};
  const news = await ask(`run?${new URLSearchParams(said)}`);
  const anew = news.edition !== mine.edition;
  if (anew) Object.assign(mine, {edition: news.edition, rounds: [], metrics: {}, clients: []});
  const before = mine.rounds.length;
  if (news.since !== before || news.lines !== mine.clients.length) return false;  // does not go on where this ends
  for (const round of news.rounds) mine.rounds.push(round);
  for (const [name, values] of Object.entries(news.metrics)) {
    const column = (mine.metrics[name] ||= []);
    while (column.length < before) column.push(null);
    for (const value of values) column.push(value);
  }
  for (const column of Object.values(mine.metrics)) while (column.length < mine.rounds.length) column.push(null);
  for (const line of news.clients) mine.clients.push(line);
  if (runs.has(path)) kept.set(path, mine);
  return news.rounds.length > 0 || news.clients.length > 0 || anew;
}

const followed = () => [...new Set([focus, ...chosen])].filter((path) => runs.has(path));

async function look() {
  try {
    settle(await ask("runs"));
    let fresh = false;
    for (const path of followed()) fresh = (await follow(path)) || fresh;
    const running = [...runs.values()].filter((run) => run.status === "running").length;
    say(runs.size ? `${runs.size} run${runs.size === 1 ? "" : "s"}, ${running} running` : NO_RUNS);
    draw(fresh);
  } catch (error) {
    say(error.message, "lost");
  }
  setTimeout(look, document.hidden ? 5 * EVERY : EVERY);
}

function say(text, kind = "") {
  put($("link"), text);
  $("link").className = kind;
}

// What there is now. Where all that was shown is gone, what a person had chosen, else what is alike.
function settle(now) {
  runs = new Map(now.map((run) => [run.path, run]));
  for (const path of kept.keys()) if (!runs.has(path)) kept.delete(path);
  chosen = chosen.filter((path) => runs.has(path));
  if (!runs.has(focus)) focus = chosen[0] ?? null;
  if (focus !== null || !runs.size) return;
  const found = view.chosen?.filter((path) => runs.has(path));
  chosen = found?.length || view.chosen?.length === 0 ? found : alike();
  focus = runs.has(view.focus) ? view.focus : chosen[0] ?? runs.keys().next().value;
}

// At first: the newest run with something to see, one that goes on if there is any, and beside it the others of its recipe.
function alike() {
  const worth = (run) => 2 * (run.status === "running") + (run.round > 0);
  const best = [...runs.values()].sort((a, b) => worth(b) - worth(a));
  return best.filter((run) => run.name === best[0].name).slice(0, AT_FIRST).map((run) => run.path);
}

// By chosen run, its style and shade. Runs that differ in their seed alone have one style and fade from seed to seed. The
// first kin of a method has the method's own style, the others what is free; kin at other levels have its colour, dashed.
function looks() {
  const shown = chosen.map((path) => runs.get(path));
  const kin = new Map(shown.map((run) => [run.kin, run.style]));
  const own = new Map();
  for (const [one, at] of kin) if (at !== null && ![...own.values()].includes(at)) own.set(one, at);
  const taken = new Set(own.values());
  let free = 0;
  for (const one of kin.keys()) {
    if (own.has(one)) continue;
    while (taken.has(free)) free += 1;
    own.set(one, free);
    taken.add(free);
  }
  const seeds = [...runs.values()].sort((a, b) => a.seed - b.seed);
  return new Map(shown.map((run) => {
    const alike = seeds.filter((other) => other.family === run.family);  // shown or not: a shade stays
    const levels = new Set(seeds.filter((other) => other.kin === run.kin).map((other) => other.family));
    const at = [...levels].sort((a, b) => b - a).indexOf(run.family);  // the oldest is the first
    return [run.path, {index: redashed(own.get(run.kin), at, taken), shade: alike.indexOf(run)}];
  }));
}

// The style of a colour `times` dashes further, past those of others, as long as there are any.
function redashed(index, times, taken) {
  const colours = PALETTE().length, all = colours * DASHES.length;
  const others = DASHES.map((_, at) => (index + at * colours) % all).filter((at) => at === index || !taken.has(at));
  return others[times % others.length];
}

function tick(path, on) {
  turn(on ? [...chosen, path] : chosen.filter((one) => one !== path), on ? path : focus);
}

function open(path) {
  turn(chosen.includes(path) ? chosen : [...chosen, path], path);
}

// What is looked at changes at once, and has its numbers as soon as they are there.
async function turn(paths, path) {
  [chosen, focus] = [paths, path];
  remember({chosen, focus});
  draw(true);
  await Promise.allSettled(followed().map(follow));
  draw(true);
}

function list() {
  rows.draw(runs, $("find").value.toLowerCase().split(/\s+/).filter(Boolean), looks(), chosen, focus);
}

// `fresh`: there are numbers that were not drawn yet.
function draw(fresh) {
  list();
  const now = JSON.stringify([focus, chosen.map((path) => label(runs.get(path))), [...looks()]]);
  if (fresh || now !== drawn) show(); else tiles();
  drawn = now;
  episodes.follow(focus);
}

function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.round(seconds);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  return h ? `${h} h ${String(m).padStart(2, "0")} min` : m ? `${m} min ${String(s).padStart(2, "0")} s` : `${s} s`;
}

function bytes(value) {
  if (!said(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${Number(value.toPrecision(3))} ${units[at]}`;
}

function last(path, name) {
  return (kept.get(path)?.metrics[name] || []).findLast((value) => value !== null);
}

function facts(run) {
  const found = {
    "round": `${run.round} of ${run.rounds}`, "status": run.status === "silent" ? `silent for ${time(run.quiet)}` : run.status,
    "time left": time(run.left), "sent up": bytes(last(focus, "comm/bytes_up")), "sent down": bytes(last(focus, "comm/bytes_down")),
    "clients": run.clients ?? "–", "failed updates": (kept.get(focus)?.clients || []).filter((line) => line[2]).length,
  };
  const epsilon = last(focus, "privacy/epsilon");
  if (epsilon !== undefined) found["ε spent"] = short(epsilon);
  if (run.why) found["why it stopped"] = run.why;
  if (metric && last(focus, metric) !== undefined) found[metric] = short(last(focus, metric));
  return Object.entries(found);
}

function tiles() {
  const run = runs.get(focus), found = run ? facts(run) : [];
  put($("title"), run ? `${source(run)} · ${label(run)} · ${run.world} · ${run.id}` : "No run chosen");
  const have = [...$("tiles").children], names = have.map((tile) => tile.firstChild.textContent);
  if (JSON.stringify(names) === JSON.stringify(found.map(([name]) => name))) {
    found.forEach(([, value], at) => put(have[at].lastChild, String(value)));
  } else {
    $("tiles").replaceChildren(...found.map(([name, value]) => element("div", "", element("dt", "", name), element("dd", "", value))));
  }
}

function fill(select, names, wanted) {
  const have = [...select.options].map((option) => option.value);
  if (JSON.stringify(have) !== JSON.stringify(names)) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
  select.disabled = !names.length;
  if (names.length) select.value = wanted;
}

// The chosen runs whose numbers are there.
const there = () => chosen.filter((path) => kept.has(path));

function show() {
  const names = [...new Set(there().flatMap((path) => Object.keys(kept.get(path).metrics)))].sort();
  const first = [...(runs.get(focus)?.first || []), ...IN_TRAINING];
  if (names.length) metric = [view.metric, metric, ...first].find((name) => names.includes(name)) ?? names[0];
  fill($("metric"), names, metric);
  const several = new Set(there().map((path) => runs.get(path).name)).size > 1, look = looks();
  const lines = there().map((path) => ({
    label: `${several && !runs.get(path).variant ? `${runs.get(path).name}: ` : ""}${label(runs.get(path))}`, ...look.get(path),
    x: kept.get(path).rounds, y: smoothed(kept.get(path).metrics[metric] || [], Number(view.smooth)),
  }));
  if (lines.length) curves.draw(lines, {log: view.log}); else curves.clear();
  $("not-positive").hidden = !view.log || !lines.some((line) => line.y.some((value) => said(value) && value <= 0));
  $("csv").disabled = !names.length;
  tiles();
  clients();
}

let asked = "";
async function clients() {
  const mine = kept.get(focus), run = runs.get(focus);
  $("clients").hidden = !mine;
  if (!mine) return;
  const most = mine.clients.reduce((most, line) => Math.max(most, line[1] + 1), 0);
  const count = Math.max(most, Number(run.clients) || 0);
  const cell = view.cell?.run === focus ? view.cell : null;
  map.draw(mine.clients, Math.min(count, MOST_CLIENTS), run.round, cell);
  const cohort = mine.clients.filter((line) => line[0] === run.round);
  const cut = count > MOST_CLIENTS ? `, of which the first ${MOST_CLIENTS} are drawn` : "";
  put($("cohort"), cohort.length
    ? `${count} clients${cut}; round ${run.round}: ${cohort.length} in the cohort, ${cohort.filter((line) => line[2]).length} failed.`
    : `${count} clients${cut}.`);
  const why = new Map();
  for (const line of mine.clients) if (line[2]) why.set(line[2], (why.get(line[2]) || 0) + 1);
  const often = [...why].sort((a, b) => b[1] - a[1]).slice(0, 8);
  $("failures").replaceChildren(...often.map(([reason, times]) => element("li", "", `${times} × ${reason}`)));
  const mark = JSON.stringify([focus, mine.edition, mine.clients.length, view.client_metric]);
  if (mark === asked) return;
  asked = mark;
  try {
    const told = await ask(`clients?${new URLSearchParams({run: focus, metric: view.client_metric ?? ""})}`);
    if (asked !== mark) return;
    fill($("client-metric"), told.metrics, told.metric);
    const lines = Object.entries(told.lines).slice(0, MOST_CURVES).map(([client, [x, y]], index) => ({label: called(client), index, x, y}));
    $("by-client").hidden = !lines.length;
    if (lines.length) byClient.draw(lines, {log: false}); else byClient.clear();
    pickOut();
  } catch { asked = ""; }
}

// A client of the run that is open, by its number and what it is called beside that.
function called(client) {
  const name = runs.get(focus)?.names[client];
  return name && name !== String(client) ? `client ${client} (${name})` : `client ${client}`;
}

// The curve of the client that is chosen on the map stands out.
function pickOut() {
  if (!byClient.plot) return;
  const at = byClient.plot.series.findIndex((line) => line.label === called(map.cell?.client));
  byClient.plot.setSeries(at < 0 ? null : at, {focus: true});
}

const quoted = (text) => `"${text.replaceAll('"', '""')}"`;

function csv() {
  const names = there().map((path) => runs.get(path).run);
  const lines = ["run,round,metric,value"];
  there().forEach((path, at) => {
    const mine = kept.get(path), alone = names.indexOf(names[at]) === names.lastIndexOf(names[at]);
    (mine.metrics[metric] || []).forEach((value, i) => {
      if (value !== null) lines.push(`${quoted(alone ? names[at] : path)},${mine.rounds[i]},${quoted(metric)},${value}`);
    });
  });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], {type: "text/csv"}));
  link.download = `${metric.replaceAll("/", "_")}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}

$("smooth").value = view.smooth;
$("log").checked = view.log;
$("metric").onchange = () => { remember({metric: $("metric").value}); show(); };
$("smooth").oninput = () => { remember({smooth: $("smooth").value}); show(); };
$("log").onchange = () => { remember({log: $("log").checked}); show(); };
$("client-metric").onchange = () => { remember({client_metric: $("client-metric").value}); clients(); };
$("find").oninput = list;
$("csv").onclick = csv;
$("skip").onclick = () => $("metric").focus();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { list(); show(); });
look();
