// One question at a time. What a person does is put into a queue that outlives a reload, and sent
// in order; the page shows the server's state with the queue applied to it, so it never waits.
//
// Every entry says which version of the question it is about. Where the person has done something
// else in another place meanwhile, the server writes nothing, and the person decides here.
import { apply, applyToAll, changed } from "./applying.js";
import { ask, download, key } from "./asking.js";
import { showEffect } from "./changed.js";
import { $, saidWord, spoken, wordsOf, UNSURE } from "./drawing.js";
import { showConflicts, showHistory, showNoHistory, sure, turnToData } from "./history.js";
import { keeper } from "./keeping.js";
import { covered, look, onKeys, onPress } from "./presses.js";
import { drawQuestion, foldIntro, showEarly, showEnd, showHead, showLately, showLearned, showQuiet }
  from "./sitting.js";
import { noLink, say, showFor, showTrouble, tell, unsent, READ } from "./telling.js";

const BATCH = 100, SOON = 2000, LATER = 15000, AGAIN = [300, 1000, 2000, 4000];
const OTHERWISE = { unsure: UNSURE, skip: "Skipped" };
const kept = keeper(key);
const tabs = new BroadcastChannel(kept.channel);  // the same person's other tabs

let queue = kept.all("entries");  // not yet known to be on the disk
let conflicts = kept.all("conflicts");  // what the person has to decide between
let known = null;      // the server's last word
let now = null;        // `known` with the queue applied: what is shown
let view = "ask", history = null, deletable = false, effect = null, edition = "";  // as told
let drafts = {};       // notes that were typed to questions which come again
let talking = false, again = false, failures = 0, timer = 0, shown = "";
let trouble = "", refused = "";  // with the connection, and with what the person has asked for
let locked = false;    // the link opens nothing, any more or yet

// The queue ------------------------------------------------------------------------------------

function enter(entry) {
  entry.once = kept.newName();
  kept.keep("entries", entry);
  queue.push(entry);
  apply(now, entry);
  show();
  talk();
}

// `told` is the question that the server was told of.
function adopt(state, told) {
  known = state;
  if (kept.takeOver(state.place)) [queue, conflicts] = [kept.all("entries"), kept.all("conflicts")];
  edition ||= state.page;
  const current = now && now.questions[0];
  now = structuredClone(known);
  for (const entry of queue) apply(now, entry);
  // A question that somebody is looking at stays, also when newer ones come in.
  const at = current ? now.questions.findIndex((one) => one.id === current.id) : -1;
  if (at > 0) now.questions.unshift(...now.questions.splice(at, 1));
  if (at < 0 && current && current.id !== told) now.questions.unshift(current);  // it will be
}

// Talking to the server: one request at a time, so that no old answer overtakes a new one ---------

async function talk() {
  if (talking) { again = true; return; }
  talking = true; again = false;
  clearTimeout(timer);
  const batch = queue.slice(0, BATCH), told = now?.questions[0]?.id;
  try {
    const reply = batch.length ? await ask("entries", { entries: batch }, told)
      : await ask("state", undefined, told);
    const said = await reply.json();
    locked = reply.status === 403;
    if (reply.ok) {
      const deleted = queue.map((entry) => entry.forget);
      queue = queue.filter((entry) => !batch.includes(entry));
      for (const entry of batch) kept.drop("entries", entry);
      failures = 0; trouble = "";
      history &&= batch.reduce(applyToAll, history);  // until it is told again
      for (const one of said.conflicts ?? []) {
        const about = questionOf(batch.find((entry) => entry.once === one.once));
        if (!deleted.includes(about)) setApart({ ...one, about });
      }
      adopt(said, told);
      if (batch.length) tabs.postMessage("entered");
      if (batch.length && !queue.length) showFor("saved", 2 * READ);
      if (batch.length || view !== "ask") await lookUp();
    } else {
      failures++;
      trouble = locked ? noLink(known, queue.length, kept.lasts)
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
  const reply = await ask(view);
  if (!reply.ok) return;
  const said = await reply.json();
  if (said.history) [history, deletable] = [said.history, said.kept];
  else effect = said;
}

const questionOf = ({ question, change, skip }) => question ?? change ?? skip;

function setApart(conflict) {
  conflicts.push(conflict);
  kept.keep("conflicts", conflict);
}

function plan() {
  if (locked) return;  // until somebody comes back to the page
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
  if (choice !== "skip" && covered()) { look(shown); return; }
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
  // What it is from then on; a note alone where there is one.
  change(one, value, note) {
    const entry = { change: one.id, value, version: one.version };
    if (note !== undefined) entry.note = note;
    tell(note === undefined ? `Changed to ${saidWord(one, value)}` : "Note kept");
    enter(entry);
    return changed(one, entry);
  },
  forget(one) {
    tell("Deleted");
    letGo(one.id);
    tabs.postMessage({ letGo: one.id });
    enter({ forget: one.id });
  },
};

// What this browser keeps of an answer that is deleted, or of all. An answer that waits to be sent
// goes with its deletion.
function letGo(id = null) {
  const ofIt = (about) => id === null || about === id;
  const parted = (list, box, gone) => list.filter((one) => {
    if (gone(one)) kept.drop(box, one);
    return !gone(one);
  });
  conflicts = parted(conflicts, "conflicts", (one) => ofIt(one.about ?? one.query?.id));
  queue = parted(queue, "entries", (entry) => id === null || entry.change === id);
  for (const name of Object.keys(drafts)) if (ofIt(name)) delete drafts[name];
  if (id !== null) return;
  $("note").value = "";
  $("noting").open = false;
  kept.tell("");
}

// Of two answers to one question, given in two places.
function decide(one, mine) {
  settle(one.once);
  kept.drop("conflicts", one);
  tabs.postMessage({ settle: one.once });
  if (!mine) { show(); return; }
  const act = one.stands === "answered" ? "change" : "question";
  enter({ [act]: one.query.id, value: one.mine, version: one.query.version, note: one.note });
}

function settle(once) {
  conflicts = conflicts.filter((other) => other.once !== once);
}

async function forgetAll() {
  refused = "";
  if (!await sure(`Delete all your answers and notes? ${$("deleting").textContent} ` +
    "You will not be asked about these again.")) return;
  // What is on its way would be written after the deletion.
  while (talking) await new Promise((done) => { setTimeout(done, 20); });
  talking = true;
  clearTimeout(timer);
  try {
    const told = now?.questions[0]?.id, reply = await ask("forget", { all: true }, told);
    if (!reply.ok) throw new Error();
    const said = await reply.json();
    letGo();
    tabs.postMessage({ letGo: null });
    history = []; deletable = false; effect = { effect: null, deleted: true };
    adopt(said, told);
    tell("All your answers are deleted");
  } catch {
    refused = "Your answers could not be deleted: there is no connection just now. Try it again.";
  }
  talking = false;
  show();
  if (!refused) $("history").focus();  // its button can do nothing more
  plan();
}

async function save(kind) {
  refused = "";
  try {
    await download(kind);
    tell("Downloaded");
  } catch {
    refused = "Your answers could not be downloaded: there is no connection just now. " +
      "Try it again.";
  }
  show();
}

function turnTo(name) {
  view = name;
  refused = "";
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

onKeys(kept, () => view === "ask" && !locked, (act, of) => {
  if (act === "undo") undo(); else choose(act, of);
});
for (const button of document.querySelectorAll("[data-choice]")) {
  const name = button.dataset.choice;
  onPress(button, (of) => choose(name in OTHERWISE ? name : Number(name), of));
}
onPress($("more"), goOn);
for (const button of document.querySelectorAll("[data-view]"))
  button.addEventListener("click", () => turnTo(button.dataset.view));
for (const button of document.querySelectorAll("[data-export]"))
  button.addEventListener("click", () => save(button.dataset.export));
$("forget-all").addEventListener("click", forgetAll);
$("to-data").addEventListener("click", turnToData);
$("see-learned").addEventListener("click", () => turnTo("effect"));
$("reload").addEventListener("click", () => location.reload());
tabs.addEventListener("message", ({ data }) => {
  if (data.letGo !== undefined) letGo(data.letGo);
  if (data.settle) settle(data.settle);
  talk();
});
$("history").addEventListener("focusout", () => setTimeout(show));  // what was kept under its hands
$("undo").addEventListener("click", (event) => { if (event.detail !== 2) undo(); });
document.addEventListener("visibilitychange", () => {
  look(shown);
  if (!document.hidden) talk();
});
addEventListener("pageshow", (event) => { if (event.persisted) { look(shown); talk(); } });
addEventListener("hashchange", () => location.reload());

// What a person sees: all text is set as text, never as HTML -------------------------------------

function show() {
  showTrouble(refused || trouble);
  document.body.classList.toggle("locked", locked);
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
  const mine = history && queue.reduce(applyToAll, history);
  if (mine) showHistory(mine, edit);
  else showNoHistory(trouble ? "Your answers cannot be shown just now; nothing is lost."
    : "One moment …");
  for (const button of document.querySelectorAll("[data-export]"))
    button.disabled = Boolean(trouble) || !mine?.length;
  // What was taken back stands no longer, and is kept until it is deleted.
  $("forget-all").disabled = Boolean(trouble) || !(mine?.length || deletable);
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
  if (view === "ask" && part === "question" && showEarly(question, now) && !fresh) {
    look(shown);
    say(spoken(question, now));
  }
  if (!fresh) return;
  shown = mark;
  scrollTo(0, 0);  // the question may be out of sight, far above the buttons
  look(shown);
}

let asked = "";  // the question that a note was typed to
function showQuestion(question) {
  const draft = $("note").value.trim();
  if (draft && asked && asked !== question.id)  // it was answered elsewhere meanwhile
    setApart({ once: `note ${asked} ${Date.now()}`, about: asked, why: "gone", note: draft });
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
