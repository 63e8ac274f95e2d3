// Nobody answers what they have not seen: a press counts for what was on the screen when the pointer
// or the key went down, and only if that had been there for a glance by then. The second half of a
// double click falls on what comes next, and is nothing.
import { $ } from "./drawing.js";

const GLANCE = 500;  // longer than the two clicks of a double click are apart
const KEYS = { ArrowLeft: -1, 1: -1, ArrowDown: 0, 2: 0, ArrowRight: 1, 3: 1,
               0: "unsure", s: "skip", u: "undo", Backspace: "undo" };

let seen = "", glances = 0;  // what has been on the screen for a glance, or nothing yet
let pressed = null;          // what `seen` was when the pointer or a key went down on a button

// From now on `shown` is being looked at, if it can be: a hidden page draws nothing.
export function look(shown) {
  const glance = ++glances;
  seen = "";
  document.body.classList.remove("seen");
  if (document.hidden) return;
  requestAnimationFrame(() => setTimeout(() => {  // drawn, and then for a while
    if (glance !== glances) return;
    seen = shown;
    document.body.classList.add("seen");
  }, GLANCE));
}

// Whether the buttons lie over what is to be judged; then it is brought into sight instead.
export function covered() {
  const bar = document.querySelector(".choices");
  const last = document.querySelector(".item.alone > :last-child");
  const lies = last && getComputedStyle(bar).position === "fixed" &&
    last.getBoundingClientRect().bottom > bar.getBoundingClientRect().top;
  if (lies) last.scrollIntoView({ block: "center" });
  return lies;
}

document.addEventListener("pointerdown", () => { pressed = { seen }; });
for (const name of ["pointerup", "pointercancel", "keyup"])
  document.addEventListener(name, () => {
    const over = pressed;
    setTimeout(() => { if (pressed === over) pressed = null; }, GLANCE);  // its click has been
  });

// A screen reader may click without a pointer or a key: then what is seen now counts.
export function onPress(button, act) {
  button.addEventListener("click", (event) => {
    const of = (pressed ?? { seen }).seen;
    pressed = null;
    if (event.detail !== 2) act(of);  // 2: the second of a double click, however slow
  });
}

// Keys work wherever the focus is, unless the person has switched that off: who speaks to a computer
// would answer by a word that is heard as letters.
export function onKeys(kept, answering, act) {
  const named = [...document.querySelectorAll("[aria-keyshortcuts]")].map((button) =>
    [button, button.getAttribute("aria-keyshortcuts")]);
  function follow() {
    const on = kept.keys();
    $("use-keys").checked = on;
    document.body.classList.toggle("nokeys", !on);
    for (const [button, keys] of named)
      if (on) button.setAttribute("aria-keyshortcuts", keys);
      else button.removeAttribute("aria-keyshortcuts");
  }
  $("use-keys").addEventListener("change", () => {
    kept.useKeys($("use-keys").checked);
    follow();
  });
  addEventListener("storage", () => { kept.keysElsewhere(); follow(); });  // in another tab
  follow();
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !answering()) return;
    if (event.target instanceof Element && event.target.matches("textarea, select, summary"))
      return;
    const onButton = event.target instanceof HTMLButtonElement;
    if (onButton && (event.key === "Enter" || event.key === " ")) {
      if (event.repeat) event.preventDefault();  // a key that is held down is one press
      else pressed = { seen };
      return;
    }
    // A text that is longer than its place is read with these keys.
    if (event.key.startsWith("Arrow") && event.target.matches?.("p")) return;
    const key = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (key === undefined || !kept.keys()) return;
    event.preventDefault();
    if (!event.repeat) act(key, seen);
  });
}
