// What a sitting shows: its question, that nothing waits, its end, and what was said lately.
import { $, isNew, make, plural, stars, asks, continuation, early, shortItems, tenths, together,
         unsureWord, wordsOf, PLACES, TEXTS_WHY, UNSURE } from "./drawing.js";

const LATELY = 6;
const LONG = 160;  // characters: a text and no title

export function drawQuestion(question, now, kept) {
  const words = wordsOf(question), alone = question.items.length === 1;
  $("ask").textContent = asks(question);
  const why = now.knows && words.later ? words.later : words.why;
  $("why").textContent = (question.prompt ? TEXTS_WHY : why) + together(now);
  $("intro").open = !kept.all("intros").some((one) => one.once === $("why").textContent);
  // On a phone the buttons stand below what is to be read, not over it.
  $("question").classList.toggle("texts",
    Boolean(question.prompt) || question.items.some((text) => text.length > LONG));
  $("given").hidden = !question.prompt;
  $("given").querySelector("h2").textContent =
    alone ? "It goes on from this text" : "Both go on from this text";
  $("given").querySelector("p").textContent = question.prompt;
  $("items").replaceChildren(...question.items.map((_, place) => card(question, place, now)));
  document.querySelectorAll(".choice span").forEach((label, place) => {
    label.textContent = words.choices[place];
  });
  $("unsure").textContent = unsureWord(question);
}

// What is asked and why stands there until a question of the kind is dealt with, then it is folded.
export const foldIntro = (kept) => kept.keep("intros", { once: $("why").textContent });

function card(question, place, now) {
  const alone = question.items.length === 1;
  const made = make("article", alone ? "item alone" : "item");
  const told = continuation(question.items[place], question.prompt);
  if (told.length > LONG) made.classList.add("long");
  if (!alone) {
    made.append(make("h2", "", PLACES[place]));
    made.setAttribute("aria-label", PLACES[place]);
  }
  made.append(make("p", "", told));
  if (alone) {
    if (question.guessed) {  // else the question names the stars: they are not the film's
      const score = make("div", "score"), [guess] = question.scores;
      score.append(make("span", "word", "Our guess "), stars(guess), tenths(guess));
      made.append(score);
    }
  }
  return made;
}

// What has happened since a guess was made, also while it is looked at; whether that is news.
export function showEarly(question, now) {
  const told = early(question, now), box = document.querySelector(".item.alone .early");
  if (!document.querySelector(".item.alone") || (box?.textContent ?? "") === told) return false;
  box?.remove();
  if (told) document.querySelector(".item.alone").append(make("div", "score early", told));
  return true;
}

// News until the person has looked at what it changed.
export function showLearned(learned, told) {
  $("learned").hidden = !learned || learned.mark === told;
  if ($("learned").hidden) return;
  const text = `The model has learned from ${learned.answers} of your answers.`;
  const place = $("learned").querySelector("b");
  if (place.textContent !== text) place.textContent = text;  // else it is said aloud again
}

// How much is left is what a person wants to know: as much as waits, and no more than a sitting
// has. It never jumps, whatever becomes of a question.
export function showHead({ progress, limit, person, client }) {
  const done = Math.min(progress.sitting, limit);
  const left = Math.min(limit - done, progress.pending), all = done + left;
  $("who").textContent = person || `client ${client}`;
  $("count").textContent = all ? `${left} left` : "";
  $("bar").setAttribute("aria-valuemax", Math.max(all, 1));
  $("bar").setAttribute("aria-valuenow", done);
  $("bar").setAttribute("aria-valuetext",
    all ? `${done} answered, ${left} left` : "No questions yet");
  $("bar").firstElementChild.style.width = `${(100 * done) / Math.max(all, 1)}%`;
}

export function showQuiet({ progress: { answered, unsure, pending }, over }) {
  const title = unsure ? "Nothing is left to answer"
    : answered ? "Thank you, all answered" : "Nothing to answer yet";
  const [head, text] = pending
    ? ["One moment", "The next question is on its way."]
    : [title, over
      ? "There is nothing more to do now. You can close this page; your link stays the same."
      : "If there is more to ask, it appears here by itself. You need not wait for it."];
  $("quiet").querySelector("h1").textContent = head;
  $("quiet").querySelector("p").textContent = text;
}

export function showEnd({ progress: { answered, sitting, pending }, limit }) {
  const total = answered > sitting ? `, ${answered} in all` : "";
  const rest = pending ? `${plural(pending, "question is", "questions are")} still waiting: ` : "";
  const end = rest ? "go on, or close this page." : "You can close this page.";
  $("sum").textContent =
    `You have given ${plural(sitting, "answer", "answers")}${total}. ` +
    `The model uses them the next time it learns. ${rest}${end}`;
  $("more").textContent = `Go on with ${limit} more`;
}

export function showLately(now) {
  if (!isNew("lately", now.recent)) return;
  $("lately").hidden = !now.recent.length;
  // Of what was skipped only what "Undo" would take back: nothing was said of it.
  const said = now.recent.filter((one, place) => !one.skip || !place);
  $("recent").replaceChildren(...said.slice(0, LATELY).map((one) => {
    if (one.value === null) {
      const row = make("li", "none"), word = one.skip ? "Skipped" : UNSURE;
      row.append(make("b", "", word), make("span", "", shortItems(one)));
      return row;
    }
    const sign = Math.sign(one.value), pick = one.kind === "compare" && sign;
    const row = make("li", pick ? "pick" : ["down", "even", "up"][sign + 1]);
    const chosen = pick ? continuation(one.items[sign < 0 ? 0 : 1], one.prompt) : shortItems(one);
    row.append(make("b", "", wordsOf(one).short[sign + 1]), make("span", "", chosen));
    return row;
  }));
}
