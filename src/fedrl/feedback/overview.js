// How far people are and how far they agree, for whoever runs the page.
import { $, isNew, make, plural, shortItems, when } from "./drawing.js";
import { showTrouble } from "./telling.js";

const key = decodeURIComponent(location.hash.slice(1)), EVERY = 5000;
const NEARER = {
  rate: "“about right” is nearer to “too high” than “too low” is",
  compare: "“about the same” is nearer to “first is better” than “second is better” is",
};

function fill(name, rows, none) {
  $(name).hidden = !rows.length;
  const body = $(name).tBodies[0];
  body.replaceChildren(...rows.map((cells) => {
    const row = make("tr");
    row.append(...cells.map((cell) => typeof cell === "number"
      ? make("td", "n", String(cell)) : make("td", "", cell)));
    return row;
  }));
  const place = $(name).parentElement;
  place.querySelector("p")?.remove();
  if (!rows.length && none) place.append(make("p", "small", none));
}

function show(said) {
  $("title").textContent = `They answer for client ${said.client} of the federation, and are told ` +
    "that whoever gave them their links can read what they say.";
  fill("people", said.people.map((one) => [one.name, one.answered, one.unsure, one.pending,
    one.last === null ? "—" : when(one.last)]), "Nobody is named.");
  const { queries, equal, alpha } = said.agreement;
  $("agreement").textContent = !queries
    ? "No question has been answered by two people yet."
    : `${plural(queries, "question was", "questions were")} answered by two people or more: they ` +
      `said the same in ${Math.round(100 * equal)}% of the comparisons. ` + (alpha === null
      ? "All answers are equal, so chance would agree as well (no α)."
      : `Krippendorff’s α is ${alpha.toFixed(2)}: 1 is full agreement, 0 is what chance ` +
        `gives. α counts how far answers are apart: ${NEARER[said.kinds[0]]}.`);
  fill("pairs", said.pairs.map((one) => [one.people.join(" and "), one.both, one.same]),
    "");
  fill("disputed", said.disputed.map((one) => [
    (one.prompt ? `${one.prompt} ` : "") + shortItems(one),
    Object.entries(one.said).map(([who, word]) => `${who}: ${word}`).join("; ")]),
    "There is no question on which people differ.");
  fill("notes", said.notes.map((one) => [one.person, one.note, shortItems(one)]), "There are no notes.");
}

async function talk() {
  try {
    const reply = await fetch("overview", { headers: { "X-Fedrl-Key": key }, cache: "no-store",
      credentials: "omit", signal: AbortSignal.timeout(10000) });
    const said = await reply.json();
    $("overview").hidden = reply.status === 403;
    if (reply.ok && isNew("overview", said)) show(said);
    showTrouble(reply.ok ? "" : reply.status === 403
      ? "This link is not complete, or no longer valid: open the whole one that fedrl feedback " +
        "prints for the overview." : said.error);
  } catch {
    showTrouble("The page cannot reach fedrl.");
  }
  setTimeout(talk, EVERY);
}

talk();
