// One question at a time. What a person does is put into a queue that outlives a reload, and sent
// in order; the page shows the server's state with the queue applied to it, so it never waits.
//
// Nobody answers what they have not seen: a press counts for the question that was on the screen
// when the pointer or the key went down, and only if that had been there for a glance by then. The
// second half of a double click falls on the next question, and is nothing.
//
// Every entry says which version of the question it is about. Where the person has done something
// else in another place meanwhile, the server writes nothing, and the person decides here.
import { apply } from "./applying.js";
import { showEffect } from "./changed.js";
import { $, make, saidWord, spoken, wordsOf, UNSURE } from "./drawing.js";
import { showConflicts, showHistory, sure } from "./history.js";
import { keeper } from "./keeping.js";
import { drawQuestion, foldIntro, showEnd, showHead, showLately, showLearned, showQuiet } from "./sitting.js";
import { say, showFor, tell, unsent, READ } from "./telling.js";

const BATCH = 100, SOON = 2000, LATER = 15000, AGAIN = [300, 1000, 2000, 4000];
const GLANCE = 500;  // longer than the two clicks of a double click are apart
const KEYS = { ArrowLeft: -1, 1: -1, ArrowDown: 0, 2: 0, ArrowRight: 1, 3: 1,
               0: "unsure", s: "skip", u: "undo", Backspace: "undo" };
const OTHERWISE = { unsure: UNSURE, skip: "Skipped" };
const key = decodeURIComponent(location.hash.slice(1));
const kept = keeper(key);
const tabs = new BroadcastChannel(kept.channel);  // the same person's other tabs

let queue = kept.all("entries");  // not yet known to be on the disk
let conflicts = kept.all("conflicts");  // what the person has to decide between
let known = null;      // the server's last word
let now = null;        // `known` with the queue applied: what is shown
let view = "ask", history = null, deletable = false, effect = null, edition = "";
let drafts = {};       // notes that were typed to questions which come again
let talking = false, again = false, failures = 0, timer = 0, entered = 0, shown = "", trouble = "";
let seen = "", glances = 0;  // what has been on the screen for a glance: `shown`, or nothing yet
let pressed = null;          // what `seen` was when the pointer or a key went down on a button

// The queue ------------------------------------------------------------------------------------

function enter(entry) {
  entry.once = kept.newName();
  kept.keep("entries", entry);
  queue.push(entry);
  apply(now, entry);
  show();
  talk();
}

function adopt(state) {
  known = state;
  edition ||= state.page;
  const current = now && now.questions[0];
  now = structuredClone(known);
  for (const entry of queue) apply(now, entry);
  // A question that somebody is looking at stays, also when newer ones come in.
  const at = current ? now.questions.findIndex((one) => one.id === current.id) : -1;
  if (at > 0) now.questions.unshift(...now.questions.splice(at, 1));
}

// Talking to the server: one request at a time, so that no old answer overtakes a new one ---------

async function talk() {
  if (talking) { again = true; return; }
  talking = true; again = false;
  clearTimeout(timer);
  const batch = queue.slice(0, BATCH);
  try {
    const reply = await fetch(batch.length ? "entries" : "state", {
      method: batch.length ? "POST" : "GET",
      headers: { "X-Fedrl-Key": key, "Content-Type": "application/json" },
      body: batch.length ? JSON.stringify({ entries: batch }) : undefined,
      credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(10000),
    });
    const said = await reply.json();
    if (reply.ok) {
      queue.splice(0, batch.length);
      for (const entry of batch) kept.drop("entries", entry);
      failures = 0; trouble = "";
      for (const one of said.conflicts ?? []) setApart(one);
      adopt(said);
      if (batch.length) tabs.postMessage("entered");
      if (batch.length && !queue.length) showFor("saved", 2 * READ);
      if (batch.length || view !== "ask") await lookUp();
    } else {
      failures++;
      trouble = reply.status === 403
        ? "This link is not complete, or no longer valid. Open the whole link that you were given."
        : `${said.error} ${unsent(queue.length)}`;
    }
  } catch {
    failures++;
    trouble = `No connection just now. ${unsent(queue.length)}`;
  }
  talking = false;
  show();
  plan();
}

// What a view beyond the questions shows; trouble with it is told by the next talk.
async function lookUp() {
  if (view === "ask") return;
  const reply = await fetch(view, { headers: { "X-Fedrl-Key": key }, credentials: "omit",
                                    cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (!reply.ok) return;
  const said = await reply.json();
  if (said.history) [history, deletable] = [said.history, said.kept];
  else effect = said;
}

function setApart(conflict) {
  conflicts.push(conflict);
  kept.keep("conflicts", conflict);
}

function plan() {
  let wait = now && now.questions.length ? LATER : SOON;
  if (queue.length || again) wait = 0;
  if (failures) wait = AGAIN[Math.min(failures, AGAIN.length) - 1];
  timer = setTimeout(talk, wait);
}

// What a person does ---------------------------------------------------------------------------

const ended = () => now.progress.sitting >= now.limit;

// `choice` is an answer's value, "unsure" or "skip"; `of` is what was seen when it was pressed.
function choose(choice, of) {
  if (!now || ended() || !now.questions.length || !of || of !== shown) return;
  const question = now.questions[0];
  if (choice === "skip" && now.progress.pending < 2) return;  // nothing could come before it
  const button = document.querySelector(`[data-choice="${choice}"]`);
  button.classList.add("pressed");
  setTimeout(() => button.classList.remove("pressed"), 130);
  say(OTHERWISE[choice] ?? wordsOf(question).choices[choice + 1]);
  const version = question.version, note = $("note").value.trim();
  $("note").value = "";
  $("noting").open = false;
  foldIntro(kept);
  if (choice === "skip") drafts[question.id] = note;
  if (choice === "skip") enter({ skip: question.id, version });
  else enter({ question: question.id, value: choice === "unsure" ? null : choice, version, note });
}

const edit = {
  change(one, value, note) {
    const entry = { change: one.id, value, version: one.version };
    tell(note === undefined ? `Changed to ${saidWord(one, value)}` : "Note kept");
    one.version++;  // until the server says so, too
    one.value = value;
    one.time = Date.now() / 1000;
    one.note = note ?? one.note;
    enter(note === undefined ? entry : { ...entry, note });
  },
  forget(one) {
    tell("Deleted");
    history = history.filter((other) => other.id !== one.id);
    enter({ forget: one.id });
  },
};

// Of two answers to one question, given in two places.
function decide(one, mine) {
  conflicts = conflicts.filter((other) => other.once !== one.once);
  kept.drop("conflicts", one);
  if (!mine) { show(); return; }
  const act = one.stands === "answered" ? "change" : "question";
  enter({ [act]: one.query.id, value: one.mine, version: one.query.version, note: one.note });
}

async function forgetAll() {
  if (!await sure(`Delete all your answers and notes? ${$("deleting").textContent}`)) return;
  try {
    const reply = await fetch("forget", {
      method: "POST", body: JSON.stringify({ all: true }), credentials: "omit",
      headers: { "X-Fedrl-Key": key, "Content-Type": "application/json" },
    });
    if (!reply.ok) throw new Error();
    history = []; deletable = false; effect = null;
    adopt(await reply.json());
    tell("All your answers are deleted");
    tabs.postMessage("entered");
  } catch {
    trouble = "Your answers could not be deleted: there is no connection just now. Try it again.";
  }
  show();
}

async function download(kind) {
  try {
    const reply = await fetch(`export?as=${kind}`, { headers: { "X-Fedrl-Key": key } });
    if (!reply.ok) throw new Error();
    const link = make("a");
    link.href = URL.createObjectURL(await reply.blob());
    link.download = `my-answers.${kind}`;
    link.click();
    URL.revokeObjectURL(link.href);
    tell("Downloaded");
  } catch {
    trouble = "Your answers could not be downloaded: there is no connection just now. " +
      "Try it again.";
    show();
  }
}

function turnTo(name) {
  view = name;
  show();
  talk();
}

function undo() {
  if (!now || !now.recent.length) return;
  tell("Taken back");
  drafts[now.recent[0].id] = now.recent[0].note ?? "";
  enter({ undo: now.recent[0].id });
}

function goOn(of) {
  if (now && ended() && of && of === shown) enter({ more: true });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || view !== "ask") return;
  if (event.target instanceof Element && event.target.matches("textarea, select, summary")) return;
  const onButton = event.target instanceof HTMLButtonElement;
  if (onButton && (event.key === "Enter" || event.key === " ")) {
    if (event.repeat) event.preventDefault();  // a key that is held down is one press
    else pressed = { seen };
    return;
  }
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (act === undefined) return;
  event.preventDefault();
  if (event.repeat) return;
  if (act === "undo") undo(); else choose(act, seen);
});
document.addEventListener("pointerdown", () => { pressed = { seen }; });
for (const name of ["pointerup", "pointercancel", "keyup"])
  document.addEventListener(name, () => {
    const over = pressed;
    setTimeout(() => { if (pressed === over) pressed = null; }, GLANCE);  // its click has been
  });

// A screen reader may click without a pointer or a key: then what is seen now counts.
function onPress(button, act) {
  button.addEventListener("click", (event) => {
    const of = (pressed ?? { seen }).seen;
    pressed = null;
    if (event.detail !== 2) act(of);  // 2: the second of a double click, however slow
  });
}
for (const button of document.querySelectorAll("[data-choice]")) {
  const name = button.dataset.choice;
  onPress(button, (of) => choose(name in OTHERWISE ? name : Number(name), of));
}
onPress($("more"), goOn);
for (const button of document.querySelectorAll("[data-view]"))
  button.addEventListener("click", () => turnTo(button.dataset.view));
for (const button of document.querySelectorAll("[data-export]"))
  button.addEventListener("click", () => download(button.dataset.export));
$("forget-all").addEventListener("click", forgetAll);
$("see-learned").addEventListener("click", () => turnTo("effect"));
$("reload").addEventListener("click", () => location.reload());
tabs.addEventListener("message", () => talk());
$("undo").addEventListener("click", (event) => { if (event.detail !== 2) undo(); });
document.addEventListener("visibilitychange", () => {
  look();
  if (!document.hidden) talk();
});
addEventListener("pageshow", (event) => { if (event.persisted) { look(); talk(); } });
addEventListener("hashchange", () => location.reload());

// From now on `shown` is being looked at, if it can be: a hidden page draws nothing.
function look() {
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

// What a person sees: all text is set as text, never as HTML -------------------------------------

function show() {
  $("trouble").hidden = !trouble;
  if (trouble) $("trouble").replaceChildren(make("span", "", trouble));
  if (!now) return;
  showConflicts(conflicts, decide);
  $("renewed").hidden = !edition || now.page === edition;
  showHead(now);
  if (view === "effect" && effect?.effect && now.learned) kept.tell(now.learned.mark);
  showLearned(now.learned, kept.told());
  for (const button of document.querySelectorAll("[data-view]")) {
    const current = button.dataset.view === view;
    $(`${button.dataset.view}-view`).hidden = !current;
    if (current) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  if (view === "history") showMine();
  if (view === "effect") showEffect(effect, now);
  showAsk();
}

// While answers cannot be had, the last ones that were known; an empty list looks like a loss.
function showMine() {
  if (history) showHistory(history, edit);
  else $("history").replaceChildren(make("li", "empty",
    trouble ? "Your answers cannot be shown just now; nothing is lost." : "One moment …"));
  for (const button of document.querySelectorAll("[data-export]"))
    button.disabled = Boolean(trouble) || !history?.length;
  // What was taken back stands no longer, and is kept until it is deleted.
  $("forget-all").disabled = Boolean(trouble) || !(history?.length || deletable);
}

function showAsk() {
  const { progress } = now, question = now.questions[0];
  const part = ended() ? "end" : question ? "question" : "quiet";
  for (const name of ["question", "quiet", "end"]) $(name).hidden = name !== part;
  const mark = view !== "ask" ? view
    : part === "question" ? `question ${question.id}` : `${part} ${progress.answered}`;
  const fresh = mark !== shown;
  $("intro").hidden = part !== "question";
  if (view === "ask" && part === "question" && fresh) showQuestion(question);
  if (part === "quiet") showQuiet(now);
  if (part === "end") showEnd(now);
  if (view === "ask" && part === "end" && fresh) $("more").focus({ preventScroll: true });
  $("skip").disabled = progress.pending < 2;
  showLately(now);
  if (!fresh) return;
  shown = mark;
  scrollTo(0, 0);  // the question may be out of sight, far above the buttons
  look();
}

let asked = "";  // the question that a note was typed to
function showQuestion(question) {
  const draft = $("note").value.trim();
  if (draft && asked && asked !== question.id)  // it was answered elsewhere meanwhile
    setApart({ once: `note ${asked} ${Date.now()}`, why: "gone", note: draft });
  if (asked !== question.id) {
    $("note").value = drafts[question.id] ?? "";
    $("noting").open = Boolean($("note").value);
  }
  asked = question.id;
  if (conflicts.length) showConflicts(conflicts, decide);
  drawQuestion(question, now, kept);
  say(spoken(question, now), true);
}

talk();
