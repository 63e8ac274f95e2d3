// My answers, to be changed and deleted; and two answers to one question.
import { $, make, stars, continuation, saidWord, shortItems, tenths, when, wordsOf,
         UNSURE } from "./drawing.js";

const rows = new Map();  // by question: a row stays that of its answer, whatever comes before it

export function showHistory(history, edit) {
  const list = $("history"), stays = new Set(history.map((one) => one.id));
  const focus = document.activeElement;
  for (const [id, row] of rows) if (!stays.has(id) && !typed(row)) takeAway(id, row);
  list.querySelector(".empty")?.remove();
  let next = list.firstElementChild;
  for (const one of history) {
    let row = rows.get(one.id);
    if (!row) rows.set(one.id, row = makeRow(one, edit));
    while (next && next !== row.item && !stays.has(next.dataset.question))
      next = next.nextElementSibling;  // a note is being typed to what was deleted elsewhere
    if (next === row.item) next = next.nextElementSibling;
    else list.insertBefore(row.item, next);
    redraw(row, one);
  }
  if (list.contains(focus)) focus.focus({ preventScroll: true });  // where its row was moved
  if (!rows.size) showNoHistory("You have no answers here now.");
}

export function showNoHistory(text) {
  if ($("history").textContent !== text) $("history").replaceChildren(make("li", "empty", text));
}

// On a phone what belongs to all answers is far below them.
export function turnToData() {
  $("my-data").scrollIntoView();
  $("my-data").focus({ preventScroll: true });
}

const held = ({ item }) =>
  item.contains(document.activeElement) && item !== document.activeElement;
const typed = (row) => held(row) && row.note.value.trim() !== row.one.note;

// The focus goes to what is beside it, and not into it: the next key must not change another answer.
function takeAway(id, { item }) {
  const beside = item.nextElementSibling ?? item.previousElementSibling;
  if (item.contains(document.activeElement)) (beside ?? $("history")).focus();
  item.remove();
  rows.delete(id);
}

// Nothing is changed under a person's hands: what was done elsewhere meanwhile is told as a conflict.
function redraw(row, one) {
  if (held(row) && document.hasFocus()) return;
  row.one = one;
  row.select.value = one.value === null ? "" : String(Math.sign(one.value));
  if (row.note.value !== one.note) row.note.value = one.note;
  if (row.when.textContent !== when(one.time)) row.when.textContent = when(one.time);
  fit(row.note);
}

function makeRow(one, edit) {
  const item = make("li"), body = make("div", "what");
  item.dataset.question = one.id;
  item.tabIndex = -1;
  if (one.prompt) body.append(make("p", "prompt", one.prompt));
  for (const text of one.items) body.append(make("p", "", continuation(text, one.prompt)));
  if (one.kind === "rate") {
    const guess = make("span", "guess", one.guessed ? "Our guess was "
      : "You were asked about ");
    guess.append(stars(one.scores[0]), tenths(one.scores[0]));
    body.append(guess);
  }
  const about = shortItems(one).slice(0, 80), row = { item, one };
  row.when = make("span", "when");
  row.select = choices(row, about, edit);
  row.note = noting(row, about, edit);
  body.append(row.when);
  const controls = make("div", "controls");
  controls.append(row.select, unfold(row, about), remove(row, about, edit));
  item.append(body, controls, row.note);
  return row;
}

function choices(row, about, edit) {
  const select = make("select");
  select.setAttribute("aria-label", `Your answer: ${about}`);
  for (const [at, word] of [...wordsOf(row.one).choices, UNSURE].entries()) {
    const option = make("option", "", word);
    option.value = at < 3 ? String(at - 1) : "";
    select.append(option);
  }
  select.addEventListener("change", () => {
    row.one = edit.change(row.one, select.value === "" ? null : Number(select.value));
  });
  return select;
}

function remove(row, about, edit) {
  const button = make("button", "quiet danger", "Delete");
  button.setAttribute("aria-label", `Delete your answer: ${about}`);
  button.addEventListener("click", async () => {
    if (await sure(`Delete your answer about “${about}”? It cannot be brought back, and you ` +
      "will not be asked about it again.")) edit.forget(row.one);
  });
  return button;
}

// On a phone an empty note is folded: most answers have none.
function unfold(row, about) {
  const button = make("button", "quiet unfold", "Note");
  button.setAttribute("aria-label", `Add a note: ${about}`);
  button.addEventListener("click", () => {
    row.item.classList.add("noting");
    row.note.focus();
  });
  return button;
}

function noting(row, about, edit) {
  const box = make("textarea", "noted");
  box.rows = 1;
  box.maxLength = 500;
  box.placeholder = "A note";
  box.setAttribute("aria-label", `Your note: ${about}`);
  box.addEventListener("input", () => fit(box));
  box.addEventListener("change", () => {
    row.one = edit.change(row.one, row.one.value, box.value.trim());
  });
  return box;
}

// As high as its text: half a note looks like a lost one.
function fit(box) {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + box.offsetHeight - box.clientHeight}px`;
}

export function sure(text) {
  const box = $("sure");
  $("sure-text").textContent = text;
  box.showModal();
  $("sure-no").focus();
  return new Promise((resolve) => {
    const end = (answer) => ({ detail }) => {
      if (detail === 2) return;  // the second of the double click that has asked
      box.close();
      resolve(answer);
    };
    $("sure-no").onclick = end(false);
    $("sure-yes").onclick = end(true);
    box.oncancel = () => resolve(false);
  });
}

// Two answers to one question ----------------------------------------------------------------------

const cards = new Map();

// `decide(conflict, mine)` is called with true if what was said here is to count. Cards stay as long
// as their conflicts: one that is drawn anew is said aloud again.
export function showConflicts(conflicts, decide) {
  const box = $("conflicts"), stays = new Set(conflicts.map((one) => one.once));
  for (const [once, card] of cards) {
    if (stays.has(once)) continue;
    card.remove();
    cards.delete(once);
  }
  for (const one of conflicts) {
    if (cards.has(one.once)) continue;
    cards.set(one.once, conflict(one, decide));
    box.append(cards.get(one.once));
  }
  box.hidden = !conflicts.length;
}

function conflict(one, decide) {
  const card = make("div", "conflict");
  if (one.why === "gone") {
    card.append(make("p", "", "This question is no longer asked, so your answer was not needed. " +
      `Thank you all the same.${one.note ? ` Your note was: “${one.note}”` : ""}`));
    card.append(choice("Close", () => decide(one, false)));
    return card;
  }
  if (one.stands === "deleted") {
    card.append(make("p", "", "You have deleted this answer in another window or on another " +
      "device; it stays deleted."), make("p", "about", shortItems(one.query)));
    if (one.note) card.append(make("p", "about", `Your note: “${one.note}”`));
    card.append(choice("OK", () => decide(one, false)));
    return card;
  }
  const here = one.skip ? "skipped it" : `said “${saidWord(one.query, one.mine)}”`;
  const there = one.stands === "waits" ? "you have taken your answer back"
    : `you have said “${saidWord(one.query, one.theirs)}”`;
  card.append(make("p", "", `In another window or on another device ${there}. Here you ${here}. ` +
    "Which one shall count?"));
  card.append(make("p", "about", shortItems(one.query)));
  if (one.note) card.append(make("p", "about", `Your note: “${one.note}”`));
  const keep = one.stands === "answered" ? `Keep “${saidWord(one.query, one.theirs)}”`
    : "Leave it so";
  const buttons = make("div", "buttons");
  buttons.append(choice(keep, () => decide(one, false)));
  if (!one.skip)
    buttons.append(choice(`Use “${saidWord(one.query, one.mine)}”`, () => decide(one, true)));
  card.append(buttons);
  return card;
}

function choice(text, act) {
  const button = make("button", "quiet", text);
  button.addEventListener("click", ({ detail }) => {
    if (detail !== 2) act();  // 2: of a double click on the card that was here before
  });
  return button;
}
