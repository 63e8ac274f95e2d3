// What changed: since before the person ever answered, and by what the model learned last.
import { $, isNew, make, plural, stars, continuation, when } from "./drawing.js";

const BEST = 10;

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
    films("with-answers", `With ${who.answers} that time`, after, without)];
  $("sides").className = "sides";
  if (!first.length) {
    $("effect-sum").textContent = `${counted(effect)} ${last}${since}`;
    $("effect-note").textContent = note;
    $("sides").replaceChildren(...lists);
    return;
  }
  $("effect-sum").textContent = `${counted(effect)} ${capital(sinceFirst(first, after, who, effect))}.` +
    since;
  $("effect-note").textContent = "In between the model may have learned from other people, too: " +
    "not all of the difference has to be yours.";
  $("sides").replaceChildren(films("before-answers", capital(who.ever), first, [], PAST),
    films("now", "Now", after, first));
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
  return `that time, ${difference(before, after)}`;
}

function sinceFirst(before, after, { ever }, effect) {
  const [was, is] = [before, after].map((rows) => alike(rows, effect));
  if (was && is) return `all films are alike to the model, as they were ${ever}`;
  if (is) return "all films are alike to the model now";
  if (was) return `${ever} all films were alike to the model; now ${order(after)}`;
  if (sharedOtherwise(before, after)) return places(before, after, ever, "now");
  return `compared with ${ever}, ${difference(before, after)}`;
}

const order = (rows) => tied(rows) ? shared(rows) : "they have an order";

// Of the same films: how many share the first place, and 0 where they have ranks.
const inFront = (rows) => tied(rows) ? Math.max(rows[0].sharing ?? 0, rows.length) : 0;
const sharedOtherwise = (before, after) =>
  !newAmong(before, after) && inFront(before) !== inFront(after);

function places(before, after, was, is) {
  const [many, left] = [before, after].map(inFront), best = `the first ${after.length}`;
  const then = many ? `${many} films shared the first place` : `${best} had an order`;
  const now = !left ? `${best} have an order`
    : many ? `${left} do` : `${left} films share the first place`;
  return `${was} ${then}; ${is} ${now}`;
}

function newAmong(before, after) {
  const known = before.map((one) => one.item);
  return after.filter((one) => !known.includes(one.item)).length;
}

function difference(before, after) {
  const known = before.map((one) => one.item), all = `first ${after.length} recommendations`;
  const fresh = newAmong(before, after);
  if (fresh) return `${plural(fresh, "recommendation is", "recommendations are")} new among the ` +
    `first ${after.length}`;
  if (!(tied(before) && tied(after)) && known.join() !== after.map((one) => one.item).join())
    return `the ${all} have another order`;
  return unmoved(before, after) ? `the ${all} are the same`
    : `our guesses moved, and not the order of the ${all}`;
}

const OTHERS = "Nothing that was said here is in it. If people elsewhere had answered by then, it " +
  "is what their answers had made of the model.";
const PRESENT = ["are", "is"], PAST = ["were", "was"];
const capital = (text) => text[0].toUpperCase() + text.slice(1);

// Scores that look the same put no film before another: their order is that of a file.
const tied = (rows) =>
  rows.length > 1 && rows.every((one) => one.score.toFixed(2) === rows[0].score.toFixed(2));

// Nothing is liked more than anything else. Films of the same kinds often share the first place:
// the best ten alone do not tell, and an older file does not say how many share a score.
const alike = (rows, { films }) =>
  tied(rows) && (!rows[0].sharing || rows[0].sharing >= films);

function shared(rows) {
  const more = rows[0].sharing - rows.length;
  const place = `share the first place, ${rows[0].score.toFixed(2)} stars`;
  return more > 0 ? `these ${rows.length} and ${more} more ${place}` : `these ${rows.length} ${place}`;
}

// Whose answers these are: of several people everybody reads what is their own.
function counted({ answers, mine, several, time }) {
  const learned = `when the model last learned (${when(time)}).`;
  if (!several) return `You had given ${plural(answers, "answer", "answers")} ${learned}`;
  return `Together you had answered ${plural(answers, "question", "questions")}, ` +
    `of which you yourself answered ${mine || "none"}, ${learned}`;
}

const unmoved = (before, after) =>
  before.every((one, place) => Math.abs(one.score - after[place].score) < 0.005);

// `before` is what the rows are compared with, where not everything was alike.
function listed(effect, name, title, rows, before = [], verbs = PRESENT) {
  const side = make("section", "side"), head = make("h2", "", title);
  head.id = name;
  side.setAttribute("aria-labelledby", name);
  side.append(head);
  if (alike(rows, effect)) {
    const all = make("p", "", `All films ${verbs[0]} alike to the model, so there ` +
      `${verbs[1]} no order to show: `);
    all.append(stars(rows[0].score), make("small", "score", rows[0].score.toFixed(2)));
    side.append(all);
    return side;
  }
  if (name === "before-answers") side.append(make("p", "small", OTHERS));
  if (tied(rows)) side.append(make("p", "", `${capital(shared(rows))}:`));
  const list = make(tied(rows) ? "ul" : "ol"), known = before.map((one) => one.item);
  for (const [place, one] of rows.entries()) {
    const item = make("li"), text = make("span", "film", one.item);
    item.append(text, stars(one.score), make("small", "score", one.score.toFixed(2)));
    if (before.length && !alike(before, effect))
      compare(item, one, place, known.indexOf(one.item), before, !tied(rows) && !tied(before));
    list.append(item);
  }
  side.append(list);
  return side;
}

function compare(item, one, place, was, before, ranked) {
  if (was < 0) {
    item.append(make("em", "new", "new"));
    return;
  }
  const moved = one.score - before[was].score, up = was - place;
  if (Math.abs(moved) >= 0.005) item.lastChild.textContent +=
    ` (${moved > 0 ? "+" : "−"}${Math.abs(moved).toFixed(2)})`;
  if (up && ranked) item.append(make("em", up > 0 ? "up" : "down",
    `${up > 0 ? "↑" : "↓"} ${Math.abs(up)}`));
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
