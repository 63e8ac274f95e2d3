// What pages are drawn with. All text is set as text, never as HTML.

const WORDS = {
  rate: { ask: "Is this guess right?", choices: ["Too high", "About right", "Too low"],
          short: ["Too high", "About right", "Too low"],
          why: "Here is a guess of how many stars you would give; say whether it is too high, " +
            "about right or too low. Your recommendations learn from that what you like." },
  start: { ask: ({ scores: [stars] }) => `Would you give fewer than ${number(stars)} stars, about ` +
             `${number(stars)}, or more?`,
           choices: ["Fewer stars", "About that", "More stars"],
           short: ["Fewer stars", "About that", "More stars"],
           why: "The first questions all start with the same stars, because nothing was known of " +
             "your taste; say whether you would give fewer, about that or more. Your " +
             "recommendations learn from that what you like.",
           later: "This question is from before the model had learned from you: it starts with the " +
             "same stars as the first ones, and is no guess. Say whether you would give fewer, " +
             "about that or more." },
  compare: { ask: "Which one is better?",
             choices: ["First is better", "About the same", "Second is better"],
             short: ["First", "The same", "Second"],
             why: "Here are two to choose from; say which one you like better. The model learns " +
               "from that what you like." },
};
// A model that scores everything alike has no guess: its score is where everything starts.
export const wordsOf = ({ kind, guessed }) =>
  WORDS[kind === "rate" && !guessed ? "start" : kind];
export const asks = (question) => {
  const { ask } = wordsOf(question);
  return typeof ask === "function" ? ask(question) : ask;
};

// What still waits from the beginning, once the model has learned, and guesses from before it learned
// more or an answer was deleted: on the card itself, for the longer words are folded away by then.
export function early(question, now) {
  const { kind, guessed, stale } = question;
  if (stale === "deleted") return "A guess from before an answer was deleted";
  if (stale) return now.others ? "A guess from before the last answers"
    : "A guess from before your last answers";
  if (kind !== "rate") return "";
  if (guessed) return now.remains ? "May still follow from what was learned from you before" : "";
  return now.knows ? "From before the model had learned from you" : "";
}

// Whose answer counts, where others answer the same or have done so.
export function together({ others, no_longer: gone }) {
  const also = gone ? ` What ${plural(gone, "person has", "people have")} said who ` +
    `${gone === 1 ? "is" : "are"} no longer asked counts, too.` : "";
  return (others ? ` You answer together with ${plural(others, "other person", "other people")}: ` +
    "the model learns the mean of what all of you say." : "") + also;
}
export const TEXTS_WHY = "A computer wrote both texts. Say which one you would rather read; what " +
  "better means is up to you, and the computer learns to write like that.";
export const UNSURE = "Cannot say";
export const unsureWord = ({ kind }) => kind === "rate" ? "Not seen / cannot say" : UNSURE;
export const MOST_STARS = 5;
export const PLACES = ["First", "Second"];

export const $ = (id) => document.getElementById(id);
export const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`;
export const number = (value) => String(Math.round(value * 100) / 100);

// Whether something is other than when it was drawn last: what is drawn anew all the time cannot be
// read, by ear or with a finger on it.
const drawn = new Map();
export function isNew(name, value) {
  const text = JSON.stringify(value), before = drawn.get(name);
  drawn.set(name, text);
  return text !== before;
}

export function make(tag, kind, text) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text !== undefined) element.textContent = text;
  return element;
}

const starred = (score) => score >= 0 && score <= MOST_STARS;
const starWords = (score) =>
  starred(score) ? `${number(score)} of ${MOST_STARS} stars` : number(score);

// Filled as far as the score says; a score on another scale is a number.
export function stars(score) {
  if (!starred(score)) return make("b", "", number(score));
  const box = make("span", "stars");
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", starWords(score));
  const filled = make("i", "", "★".repeat(MOST_STARS));
  filled.style.width = `${(100 * score) / MOST_STARS}%`;
  box.append("★".repeat(MOST_STARS), filled);
  return box;
}

// Beside stars, whose halves hide that two guesses differ; they say it aloud themselves.
export function tenths(score) {
  const beside = make("small", "tenths", starred(score) ? score.toFixed(1) : "");
  beside.setAttribute("aria-hidden", "true");
  return beside;
}

// An item without what was given: a person judges what the model wrote.
export const continuation = (text, prompt) =>
  prompt && text.startsWith(prompt) ? `… ${text.slice(prompt.length).trimStart()}` : text;

// A question as it is read aloud: with all that a person has to know to answer it.
export function spoken(question, now) {
  const { items, prompt, scores } = question;
  const told = items.map((text) => continuation(text, prompt));
  const parts = told.length > 1 ? told.map((text, place) => `${PLACES[place]}: ${text}`)
    : question.guessed ? [told[0], `Our guess: ${starWords(scores[0])}`] : told;
  if (early(question, now)) parts.push(early(question, now));
  return `${asks(question)} ${(prompt ? [prompt, ...parts] : parts).join(" — ")}`;
}

export function saidWord(one, value) {
  return value === null ? UNSURE : wordsOf(one).choices[Math.sign(value) + 1];
}

export function shortItems(one) {
  return one.items.map((text) => continuation(text, one.prompt)).join(" · ");
}

export const when = (seconds) => new Date(seconds * 1000).toLocaleString(undefined,
  { dateStyle: "medium", timeStyle: "short" });
