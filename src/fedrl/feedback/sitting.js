// What a sitting shows beside its question: that nothing waits, its end, and what was said lately.
import { $, make, plural, continuation, shortItems, UNSURE, WORDS } from "./drawing.js";

const LATELY = 6;

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
  $("lately").hidden = !now.recent.length;
  $("recent").replaceChildren(...now.recent.slice(0, LATELY).map((one) => {
    if (one.value === null) {
      const row = make("li", "none"), word = one.skip ? "Skipped" : UNSURE;
      row.append(make("b", "", word), make("span", "", shortItems(one)));
      return row;
    }
    const sign = Math.sign(one.value), pick = one.kind === "compare" && sign;
    const row = make("li", pick ? "pick" : ["down", "even", "up"][sign + 1]);
    const chosen = pick ? continuation(one.items[sign < 0 ? 0 : 1], one.prompt) : shortItems(one);
    row.append(make("b", "", WORDS[one.kind].short[sign + 1]), make("span", "", chosen));
    return row;
  }));
}
