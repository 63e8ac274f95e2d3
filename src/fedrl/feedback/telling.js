// What the page says: aloud to those who listen, and for a while to those who look.
import { $, make } from "./drawing.js";

export const READ = 3000;  // long enough for a few words

// Said aloud and shown: that something was kept is news to everybody.
export function tell(text) {
  say(text);
  $("toast").textContent = text;
  showFor("toast", READ);
}

const fading = {};
export function showFor(name, time) {
  $(name).hidden = false;
  clearTimeout(fading[name]);
  fading[name] = setTimeout(() => { $(name).hidden = true; }, time);
}

// Drawn when it changes: an alert that is drawn anew is said aloud again.
export function showTrouble(text) {
  $("trouble").hidden = !text;
  if (text && $("trouble").textContent !== text) $("trouble").replaceChildren(make("span", "", text));
}

let saying = "";
export function say(text, more) {
  saying = more ? `${saying} ${text}` : `${text}.`;
  $("said").textContent = saying;
  if (more) saying = "";
}

// A link that opens nothing: one that was `known` did so once.
export function noLink(known, count, lasts) {
  const link = known ? "This link is no longer valid. Ask for a new link whoever gave you this one."
    : "This link is not complete, or no longer valid. Open the whole link that you were given, or " +
      "ask for a new link.";
  if (!count) return link;
  const entries = count === 1 ? "Your last entry is" : `Your last ${count} entries are`;
  return `${link} ${entries} ${lasts ? "kept in this browser and sent once you open the new link in it."
    : "not sent, and lost when you close this page: this browser keeps nothing."}`;
}

// What becomes of entries that could not be sent.
export function unsent(count) {
  if (!count) return "Nothing is lost; this page tries again by itself.";
  return `${count === 1 ? "Your last entry is" : `Your last ${count} entries are`} kept on this ` +
    "device and sent by itself as soon as that works: leave this page open.";
}
