// My answers, to be changed and deleted; and two answers to one question.
import { $, make, stars, continuation, saidWord, shortItems, when, wordsOf, UNSURE }
  from "./drawing.js";

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
