// What a sitting shows beside its question: that nothing waits, its end, and what was said lately.
import { $, make, plural, continuation, shortItems, UNSURE, WORDS } from "./drawing.js";

const LATELY = 6;

export function showQuiet({ progress: { answered, unsure, pending }, over }) {
  const again = answered + unsure ? "ask again" : "ask";
  const title = unsure ? "Nothing is left to answer"
    : answered ? "Thank you, all answered" : "Nothing to answer yet";
  const [head, text] = pending
    ? ["One moment", "The next question is on its way."]
    : [title, over
      ? `The run has ended. It will ${again} if it is resumed with more rounds.`
      : `The run will ${again} in its next round, and this page will show it.`];
  $("quiet").querySelector("h1").textContent = head;
  $("quiet").querySelector("p").textContent = text;
}

export function showEnd({ progress: { answered, sitting, pending }, limit, over }) {
  const total = answered > sitting ? `, ${answered} in all` : "";
  const then = over ? "if it is resumed with more rounds" : "from its next round on";
  const rest = pending ? `${plural(pending, "question is", "questions are")} still waiting: ` : "";
  const end = rest ? "go on, or close this page." : "You can close this page.";
  $("sum").textContent =
    `You have given ${plural(sitting, "answer", "answers")}${total}. ` +
    `The run uses them ${then}. ${rest}${end}`;
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
