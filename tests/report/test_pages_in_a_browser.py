"""Every page in a real browser: light and dark, on a phone, by keyboard, by screen reader, on paper.

Skipped where no Chromium is installed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from imperfed.live import LivePage
from tests.support import made_run
from tests.support.browser import Browser, browser, installed
from tests.support.made_comparison import compared, swept
from tests.support.terminal import done

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium is installed, in which pages could be opened")

PHONE, DESK = 400, 1200
PAGES = ("run", "comparison", "sweep", "audit", "sets", "live")
READABLE = 4.5
"""The least contrast of small text, by WCAG 2.2."""
PALE = """(() => {
  const parts = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = colour => {
    const [r, g, b] = parts(colour).slice(0, 3).map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (parts(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const pale = [];
  for (const e of document.querySelectorAll("body *")) {
    const drawn = e.closest("svg") !== null;
    const own = drawn ? e.tagName === "text" : [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || e.closest(".skip")) continue;
    const colour = drawn ? getComputedStyle(e).fill : getComputedStyle(e).color;
    if (drawn && colour === "rgb(255, 255, 255)") continue;  // on the dark cells of a heat map
    const [a, b] = [light(colour), light(behind(drawn ? e.closest("figure, div") : e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < LEAST) pale.push(`${e.tagName} ${e.textContent.slice(0, 30)} ${colour}`);
  }
  return pale;
})()""".replace("LEAST", str(READABLE))
UNNAMED = """[...document.querySelectorAll("svg, img, table, [role=region]")].filter(e => {
  if (e.tagName === "IMG") return !e.alt;
  if (e.tagName === "TABLE") return !e.querySelector("th[scope]");
  const by = document.getElementById(e.getAttribute("aria-labelledby"));
  return !(e.getAttribute("aria-label") || (by && by.textContent));
}).map(e => e.outerHTML.slice(0, 80))"""
WIDE = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def under_way(out: Path) -> Path:
    """A run of three rounds after its second one."""
    folder = made_run.make(out, None, rounds=2).path
    began = datetime(2026, 1, 1)
    lines = [
        f"{(began + timedelta(seconds=9 * r)).isoformat()} round {r}: 2 of 2 sites answered, loss 1" for r in (1, 2)
    ]
    (folder / "log.txt").write_text(
        "\n".join([*lines, f"{began.isoformat()} round 2: <b>south</b> failed: gone"]) + "\n"
    )
    return folder


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePage]:
    page = LivePage(under_way(tmp_path_factory.mktemp("live")), port=0)
    threading.Thread(target=page.run, daemon=True).start()
    yield page
    page.server.shutdown()


def audited(example: str) -> Callable[[Path], Path]:
    """What writes the page of an audit of an example."""

    def write(out: Path) -> Path:
        done("example", example, out / "files")
        done("audit", out / "files", "--out", out / "audit", IMPERFED_DATA="/nowhere")
        return out / "audit" / "audit.html"

    return write


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory, live: LivePage) -> Mapping[str, str]:
    """The addresses of all pages."""
    makers: dict[str, Callable[[Path], Path]] = {
        "run": lambda out: made_run.make(out).path / "report.html",
        "comparison": lambda out: compared(out) / "report.html",
        "sweep": lambda out: swept(out) / "report.html",
        "audit": audited("labs"),
        "sets": audited("post-offices"),
    }
    files = {name: make(tmp_path_factory.mktemp(name)) for name, make in makers.items()}
    made_run.source(made_run.RunFolder(files["run"].parent))
    return {**{name: path.as_uri() for name, path in files.items()}, "live": live.address}


def show(tab: Browser, address: str, **how: Any) -> None:
    tab.said.clear()
    tab.open(address, **how)
    tab.until("document.querySelector('td') !== null")


@pytest.mark.parametrize("name", PAGES)
def test_light_or_dark_all_text_can_be_read(name: str, tab: Browser, addresses: Mapping[str, str]) -> None:
    for dark in (False, True):
        show(tab, addresses[name], width=DESK, dark=dark)
        red, green, blue = json.loads(
            tab.value("`[${getComputedStyle(document.body).backgroundColor.match(/\\d+/g)}]`")
        )
        assert (max(red, green, blue) < 60) if dark else (min(red, green, blue) > 240)
        assert tab.value(PALE) == []
    assert tab.said == []


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_it_without_scrolling_sideways(name: str, tab: Browser, addresses: Mapping[str, str]) -> None:
    show(tab, addresses[name], width=PHONE)
    assert tab.value(WIDE) == PHONE
    assert tab.value("document.querySelector('meta[name=viewport]').content.includes('width=device-width')")


@pytest.mark.parametrize("name", PAGES)
def test_a_keyboard_reaches_what_scrolls_and_what_opens(name: str, tab: Browser, addresses: Mapping[str, str]) -> None:
    show(tab, addresses[name], width=PHONE)
    reached = set()
    first = ""
    for _ in range(60):
        tab.press("Tab", 9)
        here = tab.value(
            "document.activeElement === document.body ? '' : document.activeElement.outerHTML.slice(0, 90)"
        )
        if not here or here == first:
            break
        first = first or here
        reached.add(tab.value("document.activeElement.className || document.activeElement.tagName"))
        assert tab.value("getComputedStyle(document.activeElement).outlineStyle") != "none", here
    assert "scroll" in reached
    assert 'class="skip"' in first
    tab.value("document.querySelector('.skip').focus()")
    assert tab.value("document.querySelector('.skip').getBoundingClientRect().left") >= 0
    tab.press("Enter", 13, "\r")
    tab.until("document.activeElement.id === 'content'")


@pytest.mark.parametrize("name", PAGES)
def test_a_screen_reader_is_told_what_there_is(name: str, tab: Browser, addresses: Mapping[str, str]) -> None:
    show(tab, addresses[name])
    assert tab.value(UNNAMED) == []
    nodes = tab.ask("Accessibility.getFullAXTree")["nodes"]
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    assert [said for role, said in roles if role == "image" and not said] == []
    assert any(role == "heading" and said for role, said in roles)
    assert any(role == "main" for role, _ in roles)
    assert any(role == "rowheader" and said for role, said in roles)


@pytest.mark.parametrize("name", PAGES)
def test_on_paper_it_is_black_on_white_and_nothing_is_cut_off(
    name: str, tab: Browser, addresses: Mapping[str, str]
) -> None:
    show(tab, addresses[name], width=760, dark=True, paper=True)
    assert tab.value("getComputedStyle(document.body).getPropertyValue('--ink').trim()") == "#2b2f33"
    assert tab.value(WIDE) <= 760
    assert tab.value(
        "[...document.querySelectorAll('.scroll')].every(e => getComputedStyle(e).overflowX === 'visible')"
    )
    assert tab.printed().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["run", "comparison", "sweep", "live"])
def test_names_from_elsewhere_are_only_text(name: str, tab: Browser, addresses: Mapping[str, str]) -> None:
    show(tab, addresses[name])
    assert tab.value("document.querySelectorAll('main b, main i:not(td.measure i), main script').length") == 0
    assert tab.value("document.body.innerText.includes('<b>') || document.body.innerText.includes('<i>')")


def test_links_of_a_comparison_lead_to_its_runs(tab: Browser, addresses: Mapping[str, str]) -> None:
    show(tab, addresses["comparison"])
    links = tab.value("[...document.querySelectorAll('.runs a')].map(a => a.href)")
    assert len(links) == 9
    folder = Path(addresses["comparison"].removeprefix("file://")).parent
    assert {Path(link.removeprefix("file://")).parent.parent for link in links} == {folder}
    headings = tab.value(
        "[...document.querySelectorAll('.contents a')].map(a => document.querySelector(a.hash).textContent)"
    )
    assert headings[:3] == ["Methods", "Differences", "Curves"]


def test_the_live_page_renews_itself_as_the_run_goes_on(tab: Browser, live: LivePage) -> None:
    show(tab, live.address)
    assert tab.value("document.title").startswith("2/3")
    assert tab.value("document.querySelector('progress').value") == 2
    more = [r for r in made_run.rounds_of({"north": 10, "south": 40}, 3, planned=3) if r["round"] == 3]
    with (live.folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in more)
    tab.until("document.title.startsWith('3/3')")
    assert tab.value("document.querySelector('progress').value") == 3
    assert tab.value("document.querySelector('#figure svg').getAttribute('aria-label')").endswith("60.0 % now")
    (live.folder / "summary.json").write_text(json.dumps(made_run.summary()))
    tab.until("document.getElementById('state').textContent === 'the run has ended'")
    assert tab.said == []
