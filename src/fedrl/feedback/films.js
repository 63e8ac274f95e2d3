// Lists of films and their stars. Stars that look the same put no film before another: such films
// share a rank, and where one has the stars that it had before nothing is said of it.
import { make, stars } from "./drawing.js";

const OTHERS = "Nothing that was said here is in it. If people elsewhere had answered by then, it " +
  "is what their answers had made of the model.";
const PRESENT = ["are", "is"];
export const PAST = ["were", "was"];
export const capital = (text) => text[0].toUpperCase() + text.slice(1);

const shown = (score) => score.toFixed(2);
const known = (score) => score !== undefined && score !== null;
const same = (one, other) => shown(one) === shown(other);

export const tied = (rows) =>
  rows.length > 1 && rows.every((one) => same(one.score, rows[0].score));

// Nothing is liked more than anything else. Films of the same kinds often share the first place:
// the best ten alone do not tell, and an older file does not say how many share a score.
export const alike = (rows, { films }) =>
  tied(rows) && (!rows[0].sharing || rows[0].sharing >= films);

// How many share the first place, and 0 where there are ranks.
export const inFront = (rows) => tied(rows) ? Math.max(rows[0].sharing ?? 0, rows.length) : 0;

export function shared(rows) {
  const more = rows[0].sharing - rows.length;
  const place = `share the first place, ${shown(rows[0].score)} stars`;
  return more > 0 ? `these ${rows.length} and ${more} more ${place}` : `these ${rows.length} ${place}`;
}

// The rank of each film, from 1.
export const ranks = (rows) => new Map(rows.map((one) =>
  [one.item, 1 + rows.findIndex((other) => same(other.score, one.score))]));

// How many were not listed before; with the name of their `earlier` stars only those that have
// others now.
export function newAmong(before, after, earlier = "") {
  const items = before.map((one) => one.item);
  return after.filter((one) => !items.includes(one.item) &&
    !(earlier && known(one[earlier]) && same(one[earlier], one.score))).length;
}

export const unmoved = (before, after) =>
  before.every((one, place) => same(one.score, after[place].score));

// `before` is what the rows are compared with, where not everything was alike, and `earlier` names
// their stars of then.
export function listed(effect, name, title, rows, before = [], earlier = "", verbs = PRESENT) {
  const side = section(name, title);
  if (alike(rows, effect)) {
    const all = make("p", "", `All films ${verbs[0]} alike to the model, so there ` +
      `${verbs[1]} no order to show: `);
    all.append(stars(rows[0].score), make("small", "score", shown(rows[0].score)));
    side.append(all);
    return side;
  }
  if (name === "before-answers") side.append(make("p", "small", OTHERS));
  if (tied(rows)) side.append(make("p", "", `${capital(shared(rows))}:`));
  const list = make(tied(rows) ? "ul" : "ol"), mine = ranks(rows), were = ranks(before);
  for (const [place, one] of rows.entries()) {
    const item = row(one), rank = mine.get(one.item);
    item.value = rank;
    if (before.length && !alike(before, effect)) {
      const was = one[earlier] ?? before.find((other) => other.item === one.item)?.score;
      compare(item, one, was, tied(rows) || tied(before) ? 0 : were.get(one.item) - rank,
        were.has(one.item));
    }
    const last = mine.get(rows[place + 1]?.item) !== rank;
    const together = Math.max(one.sharing ?? 0, rows.filter((other) =>
      mine.get(other.item) === rank).length);
    if (!tied(rows) && last && together > 1)
      item.append(make("small", "shares", `${together} films share this`));
    list.append(item);
  }
  side.append(list);
  return side;
}

function section(name, title) {
  const side = make("section", "side"), head = make("h2", "", title);
  head.id = name;
  side.setAttribute("aria-labelledby", name);
  side.append(head);
  return side;
}

function row(one) {
  const item = make("li");
  item.append(make("span", "film", one.item), stars(one.score),
    make("small", "score", shown(one.score)));
  return item;
}

// `up` is by how many ranks it rose: told only where its own stars moved that way.
function compare(item, one, was, up, listedBefore) {
  if (known(was) && same(was, one.score)) return;
  const moved = known(was) ? one.score - was : 0;
  if (moved) item.lastChild.textContent +=
    ` (${moved > 0 ? "+" : "−"}${Math.abs(moved).toFixed(2)})`;
  if (!listedBefore) item.append(make("em", "new", "new"));
  else if (up * moved > 0)
    item.append(make("em", up > 0 ? "up" : "down", `${up > 0 ? "↑" : "↓"} ${Math.abs(up)}`));
}

// What is liked less --------------------------------------------------------------------------------

// Since the beginning. Where all were alike then, what they had was no guess.
export function fallen(effect, first, after) {
  const rows = alike(after, effect) ? [] : effect.fell ?? [], guessed = !alike(first, effect);
  const side = guessed ? lowered("fell", "Fell most", rows, (one) => one.first)
    : lowered("fell", "Liked least now", rows);
  const fall = (one) => shown(one.first - one.score), last = rows[rows.length - 1];
  const more = last ? last.sharing - rows.filter((one) => fall(one) === fall(last)).length : 0;
  if (more > 0) side.append(make("p", "small", `${more} more ${guessed ? "fell as far" : "have as few"}.`));
  return side;
}

// What left the best ones the last time, with its stars now.
export function gone(without, after) {
  const stays = after.map((one) => one.item);
  const left = without.filter((one) =>
    !stays.includes(one.item) && known(one.other) && !same(one.other, one.score));
  return lowered("left", `No longer among the first ${after.length}`,
    left.map((one) => ({ ...one, score: one.other, was: one.score })), (one) => one.was);
}

// Nothing where there are no such films; `was` tells the stars of before.
function lowered(name, title, rows, was) {
  if (!rows.length) return null;
  const side = section(name, title), list = make("ul");
  side.classList.add("lowered");
  for (const one of rows) {
    const item = row(one);
    if (was) item.lastChild.textContent = `${shown(was(one))} → ${shown(one.score)}`;
    list.append(item);
  }
  side.append(list);
  return side;
}
