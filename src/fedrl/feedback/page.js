// One question at a time. What a person does is put into a queue that outlives a reload, and sent
// in order; the page shows the server's state with the queue applied to it, so it never waits.
//
// Nobody answers what they have not seen: a press counts for the question that was on the screen
// when the pointer or the key went down, and only if that had been there for a glance by then. The
// second half of a double click falls on the next question, and is nothing.
"use strict";
(() => {
  const LATELY = 6, BATCH = 100, SOON = 2000, LATER = 15000, AGAIN = [300, 1000, 2000, 4000];
  const GLANCE = 500;  // longer than the two clicks of a double click are apart
  const WORDS = {
    rate: { ask: "Is the model’s score right?", choices: ["Too high", "About right", "Too low"] },
    compare: { ask: "Which one is better?",
               choices: ["First is better", "About the same", "Second is better"] },
  };
  const KEYS = { ArrowLeft: -1, 1: -1, ArrowDown: 0, 2: 0, ArrowRight: 1, 3: 1,
                 0: "unsure", s: "skip", u: "undo", Backspace: "undo" };
  const OTHERWISE = { unsure: "Cannot say", skip: "Skipped" };
  const $ = (id) => document.getElementById(id);
  const key = decodeURIComponent(location.hash.slice(1));
  const box = `fedrl-feedback ${location.pathname} ${key} `;

  let queue = [];        // entries not yet known to be on the disk
  let known = null;      // the server's last word
  let now = null;        // `known` with the queue applied: what is shown
  let talking = false, failures = 0, timer = 0, entered = 0, shown = "", trouble = "";
  let seen = "", glances = 0;  // what has been on the screen for a glance: `shown`, or nothing yet
  let pressed = null;          // what `seen` was when the pointer or a key went down on a button

  // The queue ------------------------------------------------------------------------------------

  // Every entry is stored under its own name: two tabs then cannot overwrite each other's. The
  // server knows the names, so that an entry which is sent twice counts once.
  function restore() {
    const names = Object.keys(localStorage).filter((name) => name.startsWith(box)).sort();
    queue = names.map((name) => JSON.parse(localStorage.getItem(name)));
  }

  function enter(entry) {
    const random = crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
    const number = String(entered++).padStart(6, "0");
    entry.once = `${Date.now().toString(36).padStart(9, "0")}-${number}-${random}`;
    try {
      localStorage.setItem(box + entry.once, JSON.stringify(entry));
    } catch { /* storage is full or switched off: a reload before sending would lose this one */ }
    queue.push(entry);
    apply(now, entry);
    show();
    talk();
  }

  function apply(state, entry) {
    const { progress, questions, recent } = state;
    if (entry.more) {
      progress.sitting = 0;
    } else if (entry.undo !== undefined) {
      if (!recent.length || recent[0].id !== entry.undo) return;
      const { value, skip, ...question } = recent.shift();
      const rest = questions.filter((one) => one.id !== question.id);
      state.questions = [question, ...rest];
      if (!skip) progress.pending++;
      if (value !== null) {
        progress.answered--; progress.sitting = Math.max(0, progress.sitting - 1);
      } else if (!skip) progress.unsure--;
    } else if (entry.skip !== undefined) {
      const at = questions.findIndex((one) => one.id === entry.skip);
      if (at < 0) return;
      const [question] = questions.splice(at, 1);
      if (questions.length === progress.pending - 1) questions.push(question);
      recent.unshift({ ...question, value: null, skip: true });
    } else {
      const at = questions.findIndex((one) => one.id === entry.question);
      if (at < 0) return;
      const [question] = questions.splice(at, 1);
      recent.unshift({ ...question, value: entry.value, skip: false });
      progress.pending--;
      if (entry.value === null) progress.unsure++;
      else { progress.answered++; progress.sitting++; }
    }
  }

  function adopt(state) {
    known = state;
    const current = now && now.questions[0];
    now = structuredClone(known);
    for (const entry of queue) apply(now, entry);
    // A question that somebody is looking at stays, also when newer ones come in.
    const at = current ? now.questions.findIndex((one) => one.id === current.id) : -1;
    if (at > 0) now.questions.unshift(...now.questions.splice(at, 1));
  }

  // Talking to the server: one request at a time, so that no old answer overtakes a new one ---------

  async function talk() {
    if (talking) return;
    talking = true;
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
        for (const entry of batch) localStorage.removeItem(box + entry.once);
        failures = 0; trouble = "";
        adopt(said);
      } else {
        failures++;
        trouble = reply.status === 403
          ? "This address lacks its key. Open the whole address that fedrl feedback has printed."
          : `${said.error} ${kept()}`;
      }
    } catch {
      failures++;
      trouble = `The page cannot reach fedrl. If you have stopped it, start it again. ${kept()}`;
    }
    talking = false;
    show();
    plan();
  }

  function kept() {
    const count = queue.length;
    if (!count) return "";
    return `${count === 1 ? "Your last entry is" : `Your last ${count} entries are`} kept here ` +
      "and will be sent then.";
  }

  function plan() {
    let wait = now && now.questions.length ? LATER : SOON;
    if (queue.length) wait = 0;
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
    say(OTHERWISE[choice] ?? WORDS[question.kind].choices[choice + 1]);
    if (choice === "skip") enter({ skip: question.id });
    else enter({ question: question.id, value: choice === "unsure" ? null : choice });
  }

  function undo() {
    if (!now || !now.recent.length) return;
    say("Taken back");
    enter({ undo: now.recent[0].id });
  }

  function goOn(of) {
    if (now && ended() && of && of === shown) enter({ more: true });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
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
    const { progress, limit } = now, question = now.questions[0];
    const view = ended() ? "end" : question ? "question" : "quiet";
    for (const name of ["question", "quiet", "end"]) $(name).hidden = name !== view;
    $("who").textContent = `client ${now.client}`;
    const done = Math.min(progress.sitting, limit);
    $("count").textContent = `${done} of ${limit}`;
    $("bar").setAttribute("aria-valuemax", limit);
    $("bar").setAttribute("aria-valuenow", done);
    $("bar").firstElementChild.style.width = `${(100 * done) / limit}%`;
    const mark = view === "question" ? `question ${question.id}` : `${view} ${progress.answered}`;
    const fresh = mark !== shown;
    if (view === "question" && fresh) showQuestion(question);
    if (view === "quiet") showQuiet(progress);
    if (view === "end") showEnd(progress, limit);
    if (view === "end" && fresh) $("more").focus({ preventScroll: true });
    $("skip").disabled = progress.pending < 2;
    showLately();
    if (!fresh) return;
    shown = mark;
    scrollTo(0, 0);  // the question may be out of sight, far above the buttons
    look();
  }

  function showQuestion(question) {
    const words = WORDS[question.kind];
    $("ask").textContent = words.ask;
    const alone = question.items.length === 1;
    $("items").replaceChildren(...question.items.map((text, place) => {
      const card = make("article", alone ? "item alone" : "item");
      if (text.length > 160) card.classList.add("long");
      if (!alone) card.append(make("h2", "", ["First", "Second"][place]));
      const body = make("p", "", text);
      card.append(body);
      if (alone) {
        const score = make("div", "score", "The model says ");
        score.append(make("b", "", number(question.scores[0])));
        card.append(score);
      }
      return card;
    }));
    document.querySelectorAll(".choice span").forEach((label, place) => {
      label.textContent = words.choices[place];
    });
    say(`${words.ask} ${question.items.join(" — ")}`, true);
  }

  function showQuiet({ answered, unsure, pending }) {
    const again = answered + unsure ? "ask again" : "ask";
    const title = unsure ? "Nothing is left to answer"
      : answered ? "All answered" : "Nothing to answer yet";
    const [head, text] = pending
      ? ["One moment", "The next question is on its way."]
      : [title, now.over
        ? `The run has ended. It will ${again} if it is resumed with more rounds.`
        : `The run will ${again} in its next round, and this page will show it.`];
    $("quiet").querySelector("h1").textContent = head;
    $("quiet").querySelector("p").textContent = text;
  }

  function showEnd({ answered, sitting, pending }, limit) {
    const total = answered > sitting ? `, ${answered} in all` : "";
    const then = now.over ? "if it is resumed with more rounds" : "from its next round on";
    const rest = pending ? `${plural(pending, "question is", "questions are")} still waiting: ` : "";
    const end = rest ? "go on, or close this page." : "You can close this page.";
    $("sum").textContent =
      `You have given ${plural(sitting, "answer", "answers")}${total}. ` +
      `The run uses them ${then}. ${rest}${end}`;
    $("more").textContent = `Go on with ${limit} more`;
  }

  function showLately() {
    $("lately").hidden = !now.recent.length;
    $("recent").replaceChildren(...now.recent.slice(0, LATELY).map((one) => {
      if (one.value === null) {
        const row = make("li", "none"), word = one.skip ? "Skipped" : "Cannot say";
        row.append(make("b", "", word), make("span", "", one.items.join(" · ")));
        return row;
      }
      const sign = Math.sign(one.value), pick = one.kind === "compare" && sign;
      const row = make("li", pick ? "pick" : ["down", "even", "up"][sign + 1]);
      const chosen = pick ? one.items[sign < 0 ? 0 : 1] : one.items.join(" · ");
      const word = one.kind === "rate" ? WORDS.rate.choices[sign + 1]
        : ["First", "The same", "Second"][sign + 1];
      row.append(make("b", "", word), make("span", "", chosen));
      return row;
    }));
  }

  function make(tag, kind, text) {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  let saying = "";
  function say(text, more) {
    saying = more ? `${saying} ${text}` : `${text}.`;
    $("said").textContent = saying;
    if (more) saying = "";
  }

  const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`;
  const number = (value) => String(Math.round(value * 100) / 100);

  restore();
  talk();
})();
