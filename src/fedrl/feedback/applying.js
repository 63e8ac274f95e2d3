// What an entry does to the page's copy of the state, as the server will do it to the folder.

export function apply(state, entry) {
  const { progress, questions, recent } = state;
  if (entry.more) {
    progress.sitting = 0;
  } else if (entry.undo !== undefined) {
    if (!recent.length || recent[0].id !== entry.undo) return;
    const { value, skip, note, time, ...question } = recent.shift();
    question.version++;
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
    question.version++;
    if (questions.length === progress.pending - 1) questions.push(question);
    recent.unshift({ ...question, value: null, skip: true });
  } else if (entry.forget !== undefined || entry.change !== undefined) {
    const name = entry.forget ?? entry.change;
    const at = recent.findIndex((one) => one.id === name && !one.skip);
    if (at < 0) return;  // it is told with the server's next word
    const before = recent[at].value, after = entry.change === undefined ? null : entry.value;
    if (entry.change === undefined) recent.splice(at, 1);
    else recent[at] = { ...recent[at], value: after, version: recent[at].version + 1 };
    progress.answered += (after !== null) - (before !== null);
    if (entry.change !== undefined) progress.unsure += (after === null) - (before === null);
    else if (before === null) progress.unsure--;
  } else {
    const at = questions.findIndex((one) => one.id === entry.question);
    if (at < 0) return;
    const [question] = questions.splice(at, 1);
    question.version++;
    recent.unshift({ ...question, value: entry.value, skip: false, note: entry.note });
    progress.pending--;
    if (entry.value === null) progress.unsure++;
    else { progress.answered++; progress.sitting++; }
  }
}

// The same for all answers that stand.
export function applyToAll(history, entry) {
  if (entry.forget !== undefined) return history.filter((one) => one.id !== entry.forget);
  return history.map((one) => one.id === entry.change ? changed(one, entry) : one);
}

export const changed = (one, { value, note }) =>
  ({ ...one, value, note: note ?? one.note, version: one.version + 1, time: Date.now() / 1000 });
