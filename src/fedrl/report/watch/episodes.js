// The chosen run's episodes: which rounds have some is heard as they are played, texts are asked for
// when a round is looked at. What comes as HTML was escaped by the server, and no script may run.
"use strict";

class EpisodePanel {
  constructor(key, ask) {
    this.key = key;
    this.ask = ask;
    this.path = null;       // of the run that is followed
    this.stop = null;       // ends the stream that is open
    this.rounds = new Map();  // round: how many of how many were won
    this.newest = true;     // follow it
    this.open = new Set();  // tasks that are being read
    $("episode-round").onchange = () => this.choose(Number($("episode-round").value));
    $("older").onclick = () => this.step(1);
    $("newer").onclick = () => this.step(-1);
    $("newest").onclick = () => this.choose(this.order()[0]);
    // A browser gives all its pages together six connections to a server: only who is seen has one.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.hangUp(); else this.follow(this.path);
    });
  }

  order() { return [...this.rounds.keys()].sort((a, b) => b - a); }

  // Called again and again: goes on after a lost connection, and changes the run.
  follow(path) {
    if (path !== this.path) {
      this.hangUp();
      this.path = path;
      this.rounds = new Map();
      this.round = null;
      this.newest = true;
      this.open = new Set();
      this.list();
    }
    if (this.path !== null && this.stop === null && !document.hidden) this.listen();
  }

  hangUp() {
    if (this.stop) this.stop.abort();
    this.stop = null;
  }

  async listen() {
    const mine = new AbortController();
    this.stop = mine;
    try {
      const answer = await fetch(`events?run=${encodeURIComponent(this.path)}`, {headers: {"X-Fedrl-Key": this.key}, signal: mine.signal});
      if (!answer.ok) return;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = "", part = await reader.read(); !part.done; part = await reader.read()) {
        const whole = (text + part.value).split("\n\n");
        text = whole.pop();
        if (this.stop !== mine) return;
        for (const event of whole) if (event.startsWith("data: ")) this.hear(JSON.parse(event.slice(6)));
      }
    } catch (error) {
      if (!(error instanceof TypeError || error.name === "AbortError")) throw error;  // the network's
    } finally {
      if (this.stop === mine) this.stop = null;
    }
  }

  hear(news) {
    if (news.anew) this.rounds.clear();
    for (const [round, won, count] of news.rounds) this.rounds.set(round, [won, count]);
    const newest = this.order()[0] ?? null;
    const gone = this.round !== null && !this.rounds.has(this.round);
    const changed = news.anew || news.rounds.some(([round]) => round === this.round);
    // A page is not turned while somebody reads it.
    if (this.round === null || gone || (this.newest && !this.open.size)) this.show(newest);
    else if (changed) this.show(this.round);
    this.list();
  }

  choose(round) {
    this.newest = round === this.order()[0];
    this.show(round);
    this.list();
  }

  step(by) {
    const order = this.order();
    const next = order[order.indexOf(this.round) + by];
    if (next !== undefined) this.choose(next);
  }

  list() {
    const order = this.order(), select = $("episode-round");
    $("episodes").hidden = !order.length;
    const names = order.map((round) => `${round} · ${this.rounds.get(round)[0]} of ${this.rounds.get(round)[1]} won`);
    const have = [...select.options].map((option) => option.text);
    if (JSON.stringify(have) !== JSON.stringify(names)) {
      select.replaceChildren(...order.map((round, i) => new Option(names[i], round)));
    }
    if (this.round !== null) select.value = this.round;
    const at = order.indexOf(this.round);
    $("newer").disabled = at <= 0;
    $("older").disabled = at < 0 || at === order.length - 1;
    $("newest").hidden = at <= 0;
    $("newest").textContent = `newest: round ${order[0]}`;
  }

  // A task that was open in the round before stays open in this one.
  async show(round) {
    this.round = round;
    if (round === null) {
      this.shown = null;
      return $("played").replaceChildren();
    }
    let shown;
    const path = this.path;
    try {
      shown = await this.ask(`episodes?${new URLSearchParams({run: path, round})}`);
    } catch {
      if (this.round === round && this.path === path) this.round = null;  // the next news asks again
      return;
    }
    const same = JSON.stringify([path, shown]);
    if (this.round !== round || this.path !== path || same === this.shown) return;
    this.shown = same;
    const items = shown.map(({task, html}) => {
      const item = document.createElement("div");
      item.innerHTML = html;
      const details = item.querySelector(".episode");
      details.open = this.open.has(task);
      details.addEventListener("toggle", () => { if (details.isConnected) this.open[details.open ? "add" : "delete"](task); });
      return details;
    });
    $("played").replaceChildren(...items);
    const there = new Set(shown.map(({task}) => task));
    for (const task of this.open) if (!there.has(task)) this.open.delete(task);
  }
}
