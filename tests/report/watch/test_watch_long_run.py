"""`fedrl watch` on 500 rounds × 100 clients, in a browser, to the run's end: the server is killed
and comes back, the run is killed and goes back to its checkpoint, and the page stays small."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.watched_runs import Written

pytestmark = pytest.mark.slow
expect = playwright.expect
ROUNDS, CLIENTS = 500, 100
FRAMES = """() => {
  window.frames_seen = [];
  let last = performance.now();
  const next = (now) => {
    window.frames_seen.push(now - last);
    last = now;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}"""


@contextmanager
def watching(runs: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """The command in a process of its own, killed at the end without a word."""
    command = [sys.executable, "-m", "fedrl", "watch", str(runs), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        yield process, line.split()[2]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


def reach(page, run: Written, rounds: int) -> None:
    """Write up to a round, ten at a time as a fast run does, and see the page follow."""
    while run.at < rounds:
        for _ in range(min(10, rounds - run.at)):
            run.round(failed=run.at % 7 if run.at % 50 == 0 else None)
        page.wait_for_timeout(100)
    expect(page.locator("#tiles")).to_contain_text(f"{rounds} of {ROUNDS}", timeout=60_000)


def test_a_long_run_is_followed_through_kills_in_little_memory(tmp_path: Path, new_person):  # noqa: F811
    runs = tmp_path / "runs"
    run = Written(runs / "a", rounds=ROUNDS, clients=CLIENTS)
    run.round()
    with watching(runs) as (_, url):
        home = url.partition("#")[0]
        page = new_person(url, [home], expected="ERR_CONNECTION_RE")
        page.evaluate(FRAMES)
        reach(page, run, 200)
        another = Written(runs / "b", seed=1, rounds=ROUNDS)  # begins later: a number behind
        another.round()
        expect(page.locator("#runs li")).to_have_count(2)
    expect(page.locator("#link")).to_contain_text("start fedrl watch again")
    # Meanwhile the run itself was killed too, and went back to the checkpoint of round 150.
    for name in ("metrics.jsonl", "clients.jsonl", "timings.jsonl"):
        log = runs / "a" / name
        kept = [line for line in log.open() if json.loads(line)["round"] <= 150]
        log.write_text("".join(kept))
    run.at = 150
    with watching(runs) as (_, again):
        assert again == url
        # The order of runs is another one now; the page still shows the one that was chosen.
        expect(page.locator("#tiles")).to_contain_text(f"150 of {ROUNDS}")
        expect(page.locator("#title")).to_contain_text("seed 0")
        expect(page.locator("#cohort")).to_contain_text("100 clients; round 150")
        reach(page, run, ROUNDS)
        run.status("finished")
        expect(page.locator("#tiles")).to_contain_text("finished")
        shown = page.evaluate("() => [chosen, focus].flat().map((path) => runs.get(path).seed)")
        assert shown == [0, 0]
        read = "() => [kept.get(focus).rounds, kept.get(focus).clients.length]"
        assert page.evaluate(read) == [list(range(ROUNDS + 1)), ROUNDS * CLIENTS]
        page.locator("#map").hover(position={"x": 3, "y": 3})
        expect(page.locator("#tip")).to_contain_text("client 0")
        session = page.context.new_cdp_session(page)
        session.send("HeapProfiler.collectGarbage")
        heap = page.evaluate("() => performance.memory.usedJSHeapSize / 1e6")
        nodes = page.evaluate("() => document.querySelectorAll('*').length")
        frames = sorted(page.evaluate("() => window.frames_seen"))
    # Times are told, not asserted: machines differ.
    half, most = frames[len(frames) // 2], frames[int(0.99 * len(frames))]
    slow = sum(frame > 200 for frame in frames)
    print(
        f"\nheap {heap:.0f} MB, {nodes} elements, {len(frames)} frames: {half:.0f} ms in the "
        f"middle, 99% within {most:.0f} ms, {slow} over 200 ms, the longest {frames[-1]:.0f} ms"
    )
    assert heap < 100
    assert nodes < 2000
