"""The shop's pages over HTTP: one command per action, nobody's visit but one's own, no harm."""

from __future__ import annotations

import html
import http.client
import json
import re
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape
from support.children import python

from fedrl.core.types import UserError
from fedrl.envs.webshop.shop import Settings, WebShop
from fedrl.play import shop_page, shop_visitors
from fedrl.play.shop_score import score_breakdown
from fedrl.play.shop_server import HEADERS, LONGEST_BODY, open_shop

EVIL = "<script>alert(1)</script>"
SHIRT, MUG, LAMP = "B000000001", "B000000002", "B000000003"


def record(asin, name, price, options, features=("plain",), query="shirts", path="A › B"):
    return {
        "asin": asin,
        "name": name,
        "full_description": f"about {name} & more",
        "small_description": list(features),
        "pricing": price,
        "category": "fashion",
        "query": query,
        "product_category": path,
        "customization_options": {k: [{"value": v} for v in vs] for k, vs in options.items()},
    }


PRODUCTS = [
    record(
        SHIRT,
        f"linen shirt {EVIL}",
        "$20.00",
        {"color": ["red", "<b>blue"], "size": ["small", 'large "tall"']},
        ("machine wash", EVIL),
    ),
    record(MUG, "enamel mug", "$8.00$12.00", {}, query="mugs", path="K › M"),
    record(LAMP, "desk lamp linen", None, {}, query="lamps", path="H › L"),
]
PRODUCTS += [record(f"C{i:09d}", f"shirt number {i}", "$9.50", {}) for i in range(12)]
WANTED = {
    "instruction": f"Find me a linen shirt {EVIL}",
    "instruction_attributes": ["machine wash", "linen"],
    "attributes": ["machine wash", "linen"],
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("catalogue")
    (folder / "items_shuffle_1000.json").write_text(json.dumps(PRODUCTS))
    (folder / "items_ins_v2_1000.json").write_text(json.dumps({SHIRT: WANTED}))
    return WebShop(Settings(source=str(folder), products=len(PRODUCTS), validation=0))


@pytest.fixture(scope="module")
def task(shop):
    """The goal with a red, small shirt."""
    return next(
        task.id
        for task in shop.tasks("train")
        if shop.goal(task.id).options == {"color": "red", "size": "small"}
    )


def running(server):
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


@pytest.fixture(scope="module")
def server(shop, task):
    with running(open_shop(shop, task=task, split="train")) as server:
        yield server
        server.shutdown()


class Person:
    """A browser without a screen: keeps the cookie, follows redirects, knows the last page."""

    def __init__(self, server):
        self.server = server
        self.cookie = ""
        self.text = ""

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=20)
        sent = {"Cookie": self.cookie} if self.cookie else {}
        connection.request(method, path, body, sent | (headers or {}))
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.getheader("Set-Cookie"):
            self.cookie = answer.getheader("Set-Cookie").split(";")[0]
        return SimpleNamespace(status=answer.status, headers=answer.headers, text=text)

    def get(self, path="/"):
        answer = self.request("GET", path)
        if answer.status == 303:
            return self.get(answer.headers["Location"])
        self.text = answer.text
        return answer

    def post(self, path, follow=True, **fields):
        fields = {"at": self.at, **fields}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = self.request("POST", path, urlencode(fields), kind)
        if answer.status == 303 and follow:
            self.get(answer.headers["Location"].partition("#")[0])
        return answer

    def do(self, command):
        """As a click on the button with this command, or a search."""
        if command.startswith("search["):
            return self.post("/search", query=command[7:-1])
        assert f'value="{escape(command)}"' in self.text, f"no button for {command}"
        return self.post("/command", do=command)

    @property
    def at(self):
        return (re.findall(r"name=at value=(\d+)", self.text) or [""])[0]

    @property
    def steps(self):
        return int(re.search(r"<b>(\d+)</b> of 15 steps", self.text)[1])

    @property
    def observation(self):
        found = re.search(r"<h2>Observation</h2><pre>(.*?)</pre>", self.text, re.DOTALL)
        return html.unescape(found[1])


@pytest.fixture
def person(server):
    person = Person(server)
    person.get()
    return person


@pytest.mark.parametrize(
    "end", [["click[red]", "click[small]"], ["click[<b>blue]"], ['click[large "tall"]']]
)
def test_every_action_is_one_command_of_the_world(shop, task, person, end):
    visit, turn = shop.start(task)
    way = ["search[linen shirt]", f"click[{SHIRT.lower()}]", "click[features]", "click[< prev]"]
    for steps, command in enumerate([*way, *end, "click[buy now]"], 1):
        assert person.observation == turn.observation
        assert visit.goal in html.unescape(person.text)
        turn = visit.step(command)
        person.do(command)
        assert person.steps == steps
        assert escape(command) in person.text
    assert turn.done
    assert person.observation == turn.observation
    assert f"Score {turn.reward:.2f} of 1" in person.text
    assert ("Exactly what was asked for" in person.text) == (turn.reward == 1.0)
    assert person.text.count("✓ earned") == round(turn.reward * 5)
    assert all(escape(command) in person.text for command in shop.demonstrate(task))


def test_after_the_purchase_nothing_happens_but_another_goal(person):
    for command in ("search[mug]", f"click[{MUG.lower()}]", "click[buy now]"):
        person.do(command)
    assert "Not quite" in person.text
    assert "shares no noun" in person.text
    before = person.steps
    person.post("/search", query="shirt")
    assert shop_visitors.OVER in person.text
    assert person.steps == before
    person.post("/goal")
    assert person.steps == 0


def test_a_price_range_and_a_missing_price_are_explained(person, shop):
    person.do("search[mug]")
    assert "$8.00 to $12.00" in person.text
    person.do(f"click[{MUG.lower()}]")
    person.do("click[buy now]")
    assert f"this shop has drawn ${shop.prices[MUG]:.2f}" in person.text
    person.post("/goal")
    for command in ("search[lamp]", f"click[{LAMP.lower()}]", "click[buy now]"):
        person.do(command)
    assert "counts as $100.00" in person.text


def test_pages_of_results(person):
    person.do("search[shirt]")
    assert person.text.count("class=product ") == 10
    assert "< Prev" not in html.unescape(person.text)
    person.do("click[next >]")
    assert 0 < person.text.count("class=product ") < 10
    person.do("click[next >]")
    assert "No products here" in person.text
    person.do("click[< prev]")
    person.do("click[back to search]")
    assert "What are you looking for?" in person.text


def test_two_people_have_two_visits(server):
    one, two = Person(server), Person(server)
    one.get()
    two.get()
    assert one.cookie != two.cookie
    one.do("search[mug]")
    two.get()
    assert two.steps == 0
    assert "What are you looking for?" in two.text
    two.do("search[lamp]")
    one.get()
    assert "enamel mug" in one.text
    assert "desk lamp" not in one.text


def test_reload_and_stale_forms_do_nothing(person):
    old = person.at
    person.do("search[mug]")
    person.get()
    assert person.steps == 1
    person.post("/search", at=old, query="lamp")
    assert person.steps == 1
    assert shop_visitors.STALE in person.text
    assert "enamel mug" in person.text
    person.post("/goal", at=old)
    assert person.steps == 1
    person.post("/command", at="", do="click[next >]")
    assert person.steps == 1
    person.do(f"click[{MUG.lower()}]")
    assert shop_visitors.STALE not in person.text


def test_of_many_equal_clicks_one_counts(person):
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: person.post("/search", follow=False, query="mug"), range(40)))
    person.get()
    assert person.steps == 1


def test_goals_by_name_and_by_chance(shop, person):
    other = shop.tasks("train")[-1].id
    person.do("search[mug]")
    assert person.request("GET", f"/?task={other}").headers["Location"] == "/"
    person.get()
    assert person.steps == 0
    assert f"<span>{other}</span>" in person.text
    person.do("search[mug]")
    for wrong in ("goal-99999", "goal-1", "", "%00", EVIL, "goal-٣"):
        person.get("/?" + urlencode({"task": wrong}))
        assert person.steps == 1, wrong
        assert "The shop has no goal" in person.text
        assert EVIL not in person.text


def test_nothing_of_anybody_is_markup(person):
    seen = [person.text]
    for command in (f"search[{EVIL} linen]", f"click[{SHIRT.lower()}]", "click[<b>blue]"):
        person.do(command)
        seen.append(person.text)
    for page in ("description", "features", "reviews"):
        person.do(f"click[{page}]")
        seen.append(person.text)
        person.do("click[< prev]")
    person.post("/command", do=f"click[{EVIL}]", typed=1)
    seen.append(person.text)
    person.do("click[buy now]")
    seen.append(person.text)
    for text in seen:
        assert "<script" not in text
        assert "<b>blue" not in text
        assert "&lt;script&gt;" in text
        targets = re.findall(r"(?:src|href|action)=[\"']?([^\"'>]*)", text)
        assert all(re.match(r"/(?!/)|#", target) for target in targets)


def test_an_unknown_command_changes_nothing_and_says_so(person):
    person.do("search[mug]")
    for steps, wrong in enumerate(
        ("click[b0nosuchxx]", "click[buy now]", "fly", "", "click[", "\0")
    ):
        person.post("/command", do=wrong, typed=1)
        assert person.steps == steps + 2
        assert escape(shop_visitors.NOTHING) in person.text
        assert "enamel mug" in person.text


@pytest.mark.parametrize("query", ["", "   ", "[]", "\0\0", "\r\n"])
def test_a_search_for_nothing_is_free(person, query):
    person.post("/search", query=query)
    assert person.steps == 0
    assert shop_visitors.NO_WORDS in person.text


def test_long_searches_are_cut_and_brackets_are_blanks(person):
    person.post("/search", query="mug " + "x" * 10_000)
    assert person.steps == 1
    assert "Only the first 300 characters" in person.text
    assert len(person.text) < 30_000
    person.post("/search", query="a [mug] ]")
    assert "enamel mug" in person.text
    assert "<pre>search[a mug]</pre>" in person.text


def test_too_much_is_refused_kindly(person):
    answer = person.post("/search", query="x" * (LONGEST_BODY + 1))
    assert answer.status == 413
    assert "A few words find more" in answer.text
    person.get()
    assert person.steps == 0


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Length": "many"}, 411),
        ({"Cookie": ""}, 403),
    ],
)
def test_requests_from_elsewhere_do_nothing(person, headers, status):
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    body = urlencode({"at": person.at, "query": "mug"})
    answer = person.request("POST", "/search", body, kind | headers)
    assert answer.status == status
    assert "mug" not in answer.text
    person.get()
    assert person.steps == 0


def test_localhost_is_a_name_of_ours(person, server):
    answer = person.request("GET", "/", headers={"Host": f"localhost:{server.server_port}"})
    assert answer.status == 200
    assert person.request("GET", "/", headers={"Host": "rebound.example"}).status == 421


def test_methods(person):
    answer = person.request("HEAD", "/")
    assert (answer.status, answer.text) == (200, "")
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = person.request(method, "/")
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD, POST"
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert person.request("BREW", "/").status == 501
    assert person.request("POST", "/elsewhere", "", {"Content-Length": "0"}).status == 415


def test_looking_does_not_make_visitors(server):
    before = len(server.visitors.inside)
    for path in ("/shop.css", "/icon.svg", "/nothing"):
        Person(server).request("GET", path)
    Person(server).request("HEAD", "/")
    Person(server).post("/search", at="1", query="mug")
    assert len(server.visitors.inside) == before


def test_every_answer_is_guarded(person):
    answers = [person.request("GET", path) for path in ("/", "/shop.css", "/icon.svg", "/x")]
    answers += [person.request("PUT", "/"), person.request("BREW", "/"), person.post("/goal")]
    for answer in answers:
        assert all(answer.headers[name] == value for name, value in HEADERS.items())
    assert "script" not in HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in HEADERS["Content-Security-Policy"]


def test_the_cookie_is_strict(server):
    words = Person(server).request("GET", "/").headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} == set(words[1:])
    assert len(words[0].partition("=")[2]) >= 20


@pytest.mark.parametrize(
    "path",
    [
        *("/%00", "/%", "/%zz", "/..%2f..%2fetc/passwd", "/?task", "/?%00=%ff", "//evil", "*"),
        *("/shop.css/..", "/?" + "&".join(["a=b"] * 50), "/" + "a" * 60_000),
    ],
)
def test_odd_addresses_get_an_answer(person, path):
    answer = person.request("GET", path)
    assert answer.status in (200, 303, 400, 404)
    assert EVIL not in answer.text
    assert person.get().status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET http://[x/ HTTP/1.1\r\nHost: HERE\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: b\r\n" % i for i in range(200)) + b"\r\n",
        b"GET /\xff\xfe\0 HTTP/1.1\r\nHost: \xff\0\r\nCookie: \xff=;;==;\r\n\r\n",
        b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /search HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_garbage_is_answered_or_closed(server, person, raw, capfd):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as wire:
        wire.sendall(raw.replace(b"HERE", b"127.0.0.1:%d" % server.server_port))
        wire.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := wire.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    assert b" 200 " not in answer[:20]
    assert b"Traceback" not in answer
    assert person.get().status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_the_oldest_visitor_makes_room(shop, task):
    with running(open_shop(shop, task=task, split="train", visitors=2)) as server:
        first, second, third = (Person(server) for _ in range(3))
        first.get()
        second.get()
        first.do("search[mug]")  # seen again, so the second is the oldest now
        third.get()
        assert len(server.visitors.inside) == 2
        second.post("/search", query="mug")
        assert shop_visitors.PUT_AWAY in second.text
        assert second.steps == 0
        third.get()
        assert shop_visitors.PUT_AWAY not in third.text
        server.shutdown()


def test_mistakes_are_one_line(shop, server):
    with pytest.raises(UserError, match="--port"):
        open_shop(shop, split="train", port=server.server_port)
    with pytest.raises(UserError, match="--port"):
        open_shop(shop, split="train", port=70_000)
    with pytest.raises(UserError, match="no such goal"):
        open_shop(shop, split="train", task="goal-99999")
    with pytest.raises(UserError, match="split"):
        open_shop(shop, split="test")
    with pytest.raises(UserError, match="no goals"):
        open_shop(shop, split="valid")


def test_only_loopback_is_bound(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.slow
def test_ctrl_c_closes_the_shop_with_a_line():
    code = (
        "from fedrl.envs.webshop.shop import Settings, WebShop\n"
        "from fedrl.play.shop_server import serve\n"
        "serve(WebShop(Settings(products=30, validation=5)))"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with python("-c", code, **pipes) as process:
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert re.fullmatch(r"the shop is open at http://127.0.0.1:\d+/ .*\n", first)
    assert rest.strip() == "the shop is closed"
    assert errors == ""
    assert process.returncode == 0


@pytest.fixture(scope="module", params=[False, True], ids=["mended", "faithful"])
def generated(request):
    return WebShop(Settings(products=200, faithful=request.param, validation=50))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_points_make_up_the_score(generated, data):
    """Whatever is bought: score = factor · earned points / points, and 1 exactly when all is."""
    goal = data.draw(st.sampled_from(generated.goals))
    own = generated.store.by_asin[goal.asin]
    product = data.draw(st.one_of(st.just(own), st.sampled_from(generated.store.products)))
    options = {
        name: data.draw(st.sampled_from(values))
        for name, values in product.options.items()
        if values and data.draw(st.booleans())
    }
    price = generated.prices[product.asin]
    verdict = score_breakdown(product, goal, price, options, generated.rules)
    whole = len(verdict.points)
    assert whole == len(goal.attributes) + len(goal.options) + 1
    assert verdict.score == pytest.approx(verdict.factor * verdict.earned / whole)
    assert (verdict.score == 1.0) == (verdict.factor == 1.0 and verdict.earned == whole)


def test_every_point_of_the_experts_purchase_is_earned(generated):
    for task in generated.tasks("valid")[:10]:
        visitor = shop_visitors.Visitor(generated, task.id)
        for command in generated.demonstrate(task.id):
            shop_page.page(visitor)
            visitor.send(command)
            assert visitor.note == ""
        page = shop_page.page(visitor)
        assert ("✗ missed" in page) != visitor.turn.info["won"]
        assert visitor.turn.info["won"] or generated.rules.faithful
