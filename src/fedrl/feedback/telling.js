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

// What becomes of entries that could not be sent.
export function unsent(count) {
  if (!count) return "Nothing is lost; this page tries again by itself.";
  return `${count === 1 ? "Your last entry is" : `Your last ${count} entries are`} kept on this ` +
    "device and sent by itself as soon as that works: leave this page open.";
}
