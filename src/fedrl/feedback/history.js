// My answers, to be changed and deleted; what they changed; and two answers to one question.
import { $, make, plural, stars, continuation, saidWord, shortItems, when, wordsOf, UNSURE }
  from "./drawing.js";

const BEST = 10;

// Rows are kept while somebody is in one of them: nothing is taken from under their hands.
export function showHistory(history, edit) {
  const list = $("history");
  if (list.contains(document.activeElement) && document.activeElement !== document.body &&
      document.activeElement.matches("textarea")) return;
  const focus = document.activeElement && document.activeElement.id;
  if (!history.length) {
    list.replaceChildren(make("li", "empty", "You have no answers here now."));
    return;
  }
  list.replaceChildren(...history.map((one, place) => row(one, place, edit)));
  list.querySelectorAll("textarea").forEach(fit);
  if (focus && $(focus)) $(focus).focus({ preventScroll: true });
}

function row(one, place, edit) {
  const item = make("li"), body = make("div", "what");
  if (one.prompt) body.append(make("p", "prompt", one.prompt));
  for (const text of one.items) body.append(make("p", "", continuation(text, one.prompt)));
  if (one.kind === "rate") {
    const guess = make("span", "guess", one.guessed ? "Our guess was " : "It started with ");
    guess.append(stars(one.scores[0]));
    body.append(guess);
  }
  body.append(make("span", "when", when(one.time)));
  const controls = make("div", "controls"), about = shortItems(one).slice(0, 80);
  controls.append(choices(one, place, about, edit), remove(one, place, about, edit));
  item.append(body, controls, note(one, place, about, edit));
  return item;
}

function choices(one, place, about, edit) {
  const select = make("select");
  select.id = `answer-${place}`;
  select.setAttribute("aria-label", `Your answer: ${about}`);
  const words = [...wordsOf(one).choices, UNSURE];
  for (const [at, word] of words.entries()) {
    const option = make("option", "", word);
    option.value = at < 3 ? String(at - 1) : "";
    option.selected = one.value === null ? at === 3 : Math.sign(one.value) === at - 1;
    select.append(option);
  }
  select.addEventListener("change", () => {
    edit.change(one, select.value === "" ? null : Number(select.value), undefined);
  });
  return select;
}

function remove(one, place, about, edit) {
  const button = make("button", "quiet danger", "Delete");
  button.id = `delete-${place}`;
  button.setAttribute("aria-label", `Delete your answer: ${about}`);
  button.addEventListener("click", async () => {
    if (await sure(`Delete your answer about “${about}”? It cannot be brought back, and you ` +
      "will not be asked about it again.")) edit.forget(one);
  });
  return button;
}

function note(one, place, about, edit) {
  const box = make("textarea", "noted");
  box.id = `note-${place}`;
  box.rows = 1;
  box.maxLength = 500;
  box.placeholder = "A note";
  box.value = one.note;
  box.setAttribute("aria-label", `Your note: ${about}`);
  box.addEventListener("input", () => fit(box));
  box.addEventListener("change", () => edit.change(one, one.value, box.value));
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
    const end = (answer) => { box.close(); resolve(answer); };
    $("sure-no").onclick = () => end(false);
    $("sure-yes").onclick = () => end(true);
    box.oncancel = () => resolve(false);
  });
}

// What changed -------------------------------------------------------------------------------------

export function showEffect(effect, answered) {
  const sides = $("sides");
  if (!effect) {
    $("effect-sum").textContent = answered
      ? "Your answers are kept. What they change is shown here once the model has learned from them."
      : "Answer some questions first: once the model has learned from them, you see here what they changed.";
    sides.replaceChildren();
    $("effect-note").textContent = "";
    return;
  }
  const since = effect.mine === answered ? "" : ` You have ` +
    `${plural(answered, "answer", "answers")} now: that counts the next time the model learns.`;
  if (effect.kind === "texts") showTexts(effect, since);
  else showFilms(effect, since);
}

function showFilms(effect, since) {
  const before = effect.without.slice(0, BEST), after = effect.with_answers.slice(0, BEST);
  const whose = effect.several ? "the answers of all of you" : "your answers";
  $("effect-sum").textContent =
    `${counted(effect)} ${difference(before, after, whose)} (${when(effect.time)}).${since}`;
  $("sides").className = "sides";
  $("sides").replaceChildren(films("without-answers", `Without ${whose}`, before),
    films("with-answers", `With ${whose}`, after, tied(before) ? [] : before));
  $("effect-note").textContent = "Both lists begin with what the model knew before it last " +
    "learned. That holds something of earlier answers, too, so “without” is not how it was " +
    "before you ever answered.";
}

function difference(before, after, whose) {
  if (tied(after)) return tied(before)
    ? `With ${whose} and without, the best films are all alike to the model`
    : `With ${whose} the best films are all alike to the model`;
  if (tied(before))
    return `Without ${whose} the best films are all alike to the model; with them it has an order`;
  const known = before.map((one) => one.item);
  const fresh = after.filter((one) => !known.includes(one.item)).length;
  if (fresh) return `${plural(fresh, "recommendation is", "recommendations are")} new among the ` +
    `first ${after.length}`;
  if (known.join() !== after.map((one) => one.item).join())
    return `The first ${after.length} recommendations have another order`;
  return unmoved(before, after) ? `The first ${after.length} recommendations are the same`
    : `Our guesses moved, and not yet the order of the first ${after.length} recommendations`;
}

// Scores that look the same put no film before another: their order is that of a file.
const tied = (rows) =>
  rows.length > 1 && rows.every((one) => one.score.toFixed(2) === rows[0].score.toFixed(2));

// Whose answers these are: of several people everybody reads what is their own.
function counted({ answers, mine, several }) {
  if (!several) return `You had given ${plural(answers, "answer", "answers")}.`;
  return `Together you had answered ${plural(answers, "question", "questions")}, ` +
    `of which you yourself answered ${mine || "none"}.`;
}

const unmoved = (before, after) =>
  before.every((one, place) => Math.abs(one.score - after[place].score) < 0.005);

// `before` is what the rows are compared with, where there is an order to compare.
function films(name, title, rows, before = []) {
  const side = make("section", "side"), head = make("h2", "", title);
  head.id = name;
  side.setAttribute("aria-labelledby", name);
  side.append(head);
  if (tied(rows)) {
    const alike = make("p", "", "The best are all alike to the model, so there is no order to show: ");
    alike.append(stars(rows[0].score), make("small", "score", rows[0].score.toFixed(2)));
    side.append(alike);
    return side;
  }
  const list = make("ol"), known = before.map((one) => one.item);
  for (const [place, one] of rows.entries()) {
    const item = make("li"), text = make("span", "film", one.item);
    item.append(text, stars(one.score), make("small", "score", one.score.toFixed(2)));
    if (before.length) compare(item, one, place, known.indexOf(one.item), before);
    list.append(item);
  }
  side.append(list);
  return side;
}

function compare(item, one, place, was, before) {
  if (was < 0) {
    item.append(make("em", "new", "new"));
    return;
  }
  const moved = one.score - before[was].score, up = was - place;
  if (Math.abs(moved) >= 0.005) item.lastChild.textContent +=
    ` (${moved > 0 ? "+" : "−"}${Math.abs(moved).toFixed(2)})`;
  if (up) item.append(make("em", up > 0 ? "up" : "down",
    `${up > 0 ? "↑" : "↓"} ${Math.abs(up)}`));
}

function showTexts(effect, since) {
  $("effect-sum").textContent = `${counted(effect)} Here is how the model goes on from the same ` +
    `texts, before and after it last learned (${when(effect.time)}).${since}`;
  $("effect-note").textContent = `It learned from ${effect.several ? "the answers of all of you"
    : "your answers"} and from the other texts that are kept with them; which of the two made a ` +
    "difference cannot be told apart here.";
  $("sides").className = "sides texts";
  $("sides").replaceChildren(...effect.with_answers.map((one, place) => {
    const card = make("section", "side");
    card.setAttribute("aria-label", `Text ${place + 1}`);
    card.append(make("p", "prompt", one.prompt), make("h2", "", "Before"),
      make("p", "", continuation(effect.without[place].item, one.prompt)),
      make("h2", "", "After"),
      make("p", "", continuation(one.item, one.prompt)));
    return card;
  }));
}

// Two answers to one question ----------------------------------------------------------------------

// `decide(conflict, mine)` is called with true if what was said here is to count.
export function showConflicts(conflicts, decide) {
  const box = $("conflicts");
  box.hidden = !conflicts.length;
  box.replaceChildren(...conflicts.map((one) => conflict(one, decide)));
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
  button.addEventListener("click", act);
  return button;
}
