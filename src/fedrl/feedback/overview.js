// How far people are and how far they agree, for whoever runs the page.
import { ask } from "./asking.js";
import { $, isNew, make, plural, shortItems, when } from "./drawing.js";
import { showTrouble } from "./telling.js";

const EVERY = 5000;

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
  const asked = said.people.map((one) => [one.name, one.answered, one.unsure, one.pending,
    one.last === null ? "—" : when(one.last)]);
  const others = Object.entries(said.no_longer).map(([name, count]) =>
    [`${name || "who answered without a name"} (no longer asked)`, count, "—", "—", "—"]);
  fill("people", [...asked, ...others], "Nobody is named.");
  const { queries, equal, alpha } = said.agreement;
  $("agreement").textContent = !queries
    ? "No question has been answered by two people yet."
    : `${plural(queries, "question was", "questions were")} answered by two people or more: they ` +
      `said the same in ${Math.round(100 * equal)}% of the comparisons. ` + (alpha === null
      ? "All answers are equal, so chance would agree as well (no α)."
      : `Krippendorff’s α is ${alpha.toFixed(2)}: 1 is full agreement, 0 is what chance ` +
        "gives. α counts how far answers are apart: the answer in the middle is nearer to either " +
        "end than the ends are to each other.");
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
    const reply = await ask("overview");
    const said = await reply.json();
    const wrong = [403, 404].includes(reply.status);
    if (reply.ok || wrong) $("overview").hidden = wrong;
    if (reply.ok && isNew("overview", said)) show(said);
    showTrouble(reply.ok ? "" : wrong
      ? "This link is not complete, or no longer valid: open the whole one that fedrl feedback " +
        "prints for the overview." : said.error);
  } catch {
    showTrouble("The page cannot reach fedrl.");
  }
  setTimeout(talk, EVERY);
}

talk();
