// What changed: since before the person ever answered, and by what the model learned last.
import { $, isNew, make, plural, continuation, when } from "./drawing.js";
import { alike, capital, fallen, gone, inFront, listed, newAmong, ranks, shared, tied, unmoved, PAST }
  from "./films.js";

const BEST = 10;
const FEW = 20;  // answers: from fewer little can be told

// Of one person and of several: whose answers these are, and who ever answered.
const ONE = { answers: "your answers", ever: "before you ever answered", earlier: "from you" };
const ALL = { answers: "the answers of all of you", ever: "before any of you had answered",
              earlier: "from you all" };
const whose = ({ several }) => several ? ALL : ONE;

export function showEffect(told, { progress: { answered }, others }) {
  if (!isNew("effect", [told, answered, others])) return;
  const effect = told?.effect;
  $("last").hidden = !effect || effect.kind === "texts" || !effect.first.length;
  if (!effect) {
    $("effect-sum").textContent = nothing(told, answered, others);
    $("sides").replaceChildren();
    $("effect-note").textContent = "";
    return;
  }
  const since = effect.mine === answered ? "" : ` You have ` +
    `${plural(answered, "answer", "answers")} now: that counts the next time the model learns.`;
  if (effect.kind === "texts") showTexts(effect, since);
  else showFilms(effect, since);
}

function nothing(told, answered, others) {
  if (!answered && told?.deleted)
    return `${others ? "Answers were deleted" : "You have deleted your answers"}, so there is no ` +
      "comparison to show. What the model had learned from them and sent on stays. Once it has " +
      "learned from new answers, you see here what they changed.";
  if (!answered) return "Answer some questions first: once the model has learned from them, you " +
    "see here what they changed.";
  if (told?.deleted) return `${others ? "An answer was deleted" : "You have deleted an answer"}, ` +
    "so what it had changed is no longer shown. It comes anew when the model has learned again.";
  return "Your answers are kept. What they change is shown here once the model has learned from them.";
}

// Films --------------------------------------------------------------------------------------------

function showFilms(effect, since) {
  const who = whose(effect);
  const [first, without, after] =
    [effect.first, effect.without, effect.with_answers].map((rows) => rows.slice(0, BEST));
  const last = `${capital(lastTime(without, after, who, effect))}.`;
  const note = "Both lists begin with what the model knew just before it learned that time. That " +
    `holds something of earlier answers, too, so “without” is not how it was ${who.ever}.`;
  const films = (...side) => listed(effect, ...side);
  const lists = [films("without-answers", `Without ${who.answers} that time`, without),
    films("with-answers", `With ${who.answers} that time`, after, without, "other"),
    gone(without, after)].filter(Boolean);
  const few = effect.answers < FEW ? " With so few answers small differences mean little." : "";
  $("sides").className = "sides";
  if (!first.length) {
    $("effect-sum").textContent = `${counted(effect)} ${last}${since}`;
    $("effect-note").textContent = note + few;
    $("sides").replaceChildren(...lists);
    return;
  }
  $("effect-sum").textContent = `${counted(effect)} ${capital(sinceFirst(first, after, who, effect))}.` +
    since;
  $("effect-note").textContent = "In between the model may have learned from other people, too: " +
    `not all of the difference has to be yours.${few}`;
  $("sides").replaceChildren(...[films("before-answers", capital(who.ever), first, [], "", PAST),
    films("now", "Now", after, first, "first"), fallen(effect, first, after)].filter(Boolean));
  $("last-note").textContent = `${last} ${note}`;
  $("last-sides").replaceChildren(...lists);
}

function lastTime(before, after, { answers }, effect) {
  const [was, is] = [before, after].map((rows) => alike(rows, effect));
  if (was && is) return `that time, with ${answers} and without, all films were alike to the model`;
  if (is) return `that time, with ${answers} all films were alike to the model`;
  if (was) return `that time, without ${answers} all films would have been alike to the model; ` +
    `with them ${order(after)}`;
  if (sharedOtherwise(before, after))
    return places(before, after, `without ${answers}`, "with them");
  return `that time, ${difference(before, after, "other")}`;
}

function sinceFirst(before, after, { ever }, effect) {
  const [was, is] = [before, after].map((rows) => alike(rows, effect));
  if (was && is) return `all films are alike to the model, as they were ${ever}`;
  if (is) return "all films are alike to the model now";
  if (was) return `${ever} all films were alike to the model; now ${order(after)}`;
  if (sharedOtherwise(before, after)) return places(before, after, ever, "now");
  return `compared with ${ever}, ${difference(before, after, "first")}`;
}

const order = (rows) => tied(rows) ? shared(rows) : "they have an order";

// Of the same films.
const sharedOtherwise = (before, after) =>
  !newAmong(before, after) && inFront(before) !== inFront(after);

function places(before, after, was, is) {
  const [many, left] = [before, after].map(inFront), best = `the first ${after.length}`;
  const then = many ? `${many} films shared the first place` : `${best} had an order`;
  const now = !left ? `${best} have an order`
    : many ? `${left} do` : `${left} films share the first place`;
  return `${was} ${then}; ${is} ${now}`;
}

function difference(before, after, earlier) {
  const all = `first ${after.length} recommendations`, fresh = newAmong(before, after, earlier);
  if (fresh) return `${plural(fresh, "recommendation is", "recommendations are")} new among the ` +
    `first ${after.length}`;
  const [was, is] = [before, after].map(ranks);
  if (newAmong(before, after))
    return `those that are new among the ${all} have the same stars as before`;
  if ([...is].some(([item, rank]) => was.get(item) !== rank))
    return `the ${all} have another order`;
  return unmoved(before, after) ? `the ${all} are the same`
    : `our guesses moved, and not the order of the ${all}`;
}

// Whose answers these are: of several people everybody reads what is their own.
function counted({ answers, mine, several, time }) {
  const learned = `when the model last learned (${when(time)}).`;
  if (!several) return `You had given ${plural(answers, "answer", "answers")} ${learned}`;
  return `Together you had answered ${plural(answers, "question", "questions")}, ` +
    `of which you yourself answered ${mine || "none"}, ${learned}`;
}

// Texts --------------------------------------------------------------------------------------------

function showTexts(effect, since) {
  const who = whose(effect);
  $("effect-sum").textContent = `${counted(effect)} Here is how the model goes on from the same ` +
    `texts, before and after that.${since}`;
  $("effect-note").textContent = `It learned from ${who.answers} and from the other texts that are ` +
    "kept with them; which of the two made a difference cannot be told apart here. “Before” " +
    `holds something of what it had learned ${who.earlier} earlier.`;
  $("sides").className = "sides texts";
  $("sides").replaceChildren(...effect.with_answers.map((one, place) => {
    const card = make("section", "side"), first = effect.first[place];
    card.setAttribute("aria-label", `Text ${place + 1}`);
    card.append(make("p", "prompt", one.prompt));
    if (first && first.prompt === one.prompt)
      card.append(make("h2", "", capital(who.ever)),
        make("p", "", continuation(first.item, one.prompt)));
    card.append(make("h2", "", "Before it last learned"),
      make("p", "", continuation(effect.without[place].item, one.prompt)),
      make("h2", "", "After it last learned"),
      make("p", "", continuation(one.item, one.prompt)));
    return card;
  }));
}
