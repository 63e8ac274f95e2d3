// What outlives a reload: entries that are not yet known to be on the disk, answers that wait for a
// decision, what the person was told or has read, and whether keys answer. A browser may have no room
// or may not allow it: then a reload loses just that, and the page works all the same.
const place = (() => { try { return localStorage; } catch { return null; } })();

// Every entry is stored under its own name: two tabs then cannot overwrite each other's. The server
// knows the names, so that an entry which is sent twice counts once. They sort as they were entered,
// also where a clock is set back meanwhile.
export function keeper(key) {
  const about = `${location.pathname} ${key} `;
  const boxes = { entries: `fedrl-feedback ${about}`, conflicts: `fedrl-conflict ${about}`,
                  intros: `fedrl-told-intro ${about}` };
  const told = `fedrl-told ${about}`, keys = `fedrl-keys ${about}`;
  const places = `fedrl-told-place ${location.pathname} `, where = places + key;
  const names = (box) =>
    Object.keys(place ?? {}).filter((name) => name.startsWith(boxes[box])).sort();
  const stamp = (name) => parseInt(name.slice(boxes.entries.length).split("-")[0], 36) || 0;
  const stored = () => place?.getItem(keys) !== "off";
  let known = place?.getItem(told) ?? "", keyed = stored();
  let latest = Math.max(0, ...names("entries").map(stamp)), entered = 0;

  function write(name, text) {
    try {
      place?.setItem(name, text);
    } catch { /* it is full: a reload before this is sent would lose it */ }
  }

  return {
    channel: boxes.entries,
    lasts: place !== null,
    // What an earlier link of the same person did not send; whether there was anything.
    takeOver(mark) {
      if (place?.getItem(where) === mark) return false;
      let found = false;
      write(where, mark);
      const old = Object.keys(place ?? {}).filter((name) =>
        name.startsWith(places) && name !== where && place.getItem(name) === mark);
      for (const name of old) {
        const before = `${location.pathname} ${name.slice(places.length)} `;
        for (const kind of ["fedrl-feedback ", "fedrl-conflict "]) {
          const from = kind + before;
          for (const one of Object.keys(place).filter((stored) => stored.startsWith(from))) {
            write(kind + about + one.slice(from.length), place.getItem(one));
            place.removeItem(one);
            found = true;
          }
        }
        place.removeItem(name);
      }
      return found;
    },
    all: (box) => names(box).map((name) => JSON.parse(place.getItem(name))),
    keep: (box, one) => write(boxes[box] + one.once, JSON.stringify(one)),
    drop: (box, one) => place?.removeItem(boxes[box] + one.once),
    newName() {
      latest = Math.max(latest, Date.now());
      const random = crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
      const number = String(entered++).padStart(6, "0");
      return `${latest.toString(36).padStart(9, "0")}-${number}-${random}`;
    },
    keys: () => keyed,
    keysElsewhere() { keyed = stored(); },
    useKeys(on) {
      keyed = on;
      write(keys, on ? "on" : "off");
    },
    told: () => known,
    tell(mark) {
      if (mark !== known) write(told, mark);
      known = mark;
    },
  };
}
