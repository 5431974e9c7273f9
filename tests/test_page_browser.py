"""The pages in a real Chromium: nothing of a session runs, and a person gets around."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    Response,
    sync_playwright,
)

import perdure
from perdure.http.paths import segment_of
from perdure.http.tokens import Tokens
from tests.support import soaked
from tests.test_page import HOSTILE, everything, said

SCRIPT = Path(__file__).parent / "browser" / "chromium.sh"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
VIOLATIONS = (
    "window.violations = [];"
    "document.addEventListener('securitypolicyviolation',"
    " event => window.violations.push(event.violatedDirective + ' ' + event.blockedURI));"
)


Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


class Served(NamedTuple):
    """A server: where it is, the link that it printed, and its store."""

    origin: str
    link: str
    store: Path


@contextmanager
def serving(store: Path) -> Iterator[Served]:
    command = [sys.executable, "-m", "perdure", "--store", str(store), "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            link = process.stdout.readline().strip()
            parts = urlsplit(link)
            assert parts.hostname == "127.0.0.1", link
            yield Served(f"{parts.scheme}://{parts.netloc}", link, store)
        finally:
            process.terminate()
            process.wait()


def fill(store: perdure.Store) -> None:
    """Sessions with hostile content, a long one, and an ordinary one."""
    for number, text in enumerate(HOSTILE):
        with store.create(f"h{number} {text}", cwd="/" + text, vocabulary=None) as session:
            for event in everything(text):
                session.append(agent=text[:200], **event)
    with store.create("long", vocabulary=None) as session:
        session.append_many(
            {"type": "user/message", "data": said(f"sentence number{number} of it")}
            for number in range(700)
        )
    for number in range(40):
        with store.create(f"small-{number}", created_at=number + 1) as session:
            session.append("session/titled", {"title": f"Small {number}"}, time=number + 1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that prints a link with a token for this run."""
    place = tmp_path_factory.mktemp("served") / "store"
    with perdure.open(place) as store:
        fill(store)
    with serving(place) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium with a profile of its own."""
    paths = [path for path in map(shutil.which, NAMES) if path is not None]
    assert paths, "no Chromium on the PATH: `make browser` finds or installs one"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=paths[0], headless=True, args=[*SWITCHES]
        )
        yield started
        started.close()


class Watched:
    """A page in a browser, and whatever happens in it that should not."""

    def __init__(self, browser: Browser, origin: str, *, scripts: bool = True) -> None:
        context = browser.new_context(java_script_enabled=scripts)
        context.set_default_timeout(20_000)
        context.add_init_script(VIOLATIONS)
        self.context = context
        self.page: Page = context.new_page()
        self.faults: list[str] = []
        self.expected: set[int] = set()
        self._origin = f"{origin}/"
        self._scripts = scripts
        self.page.on("dialog", self._dialog)
        self.page.on("pageerror", lambda error: self.faults.append(f"error {error}"))
        self.page.on("popup", lambda _: self.faults.append("popup"))
        self.page.on("download", lambda _: self.faults.append("download"))
        self.page.on("console", self._told)
        self.page.on("requestfailed", self._failed)
        self.page.on("request", self._asked)
        self.page.on("response", self._answered)

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _told(self, told: ConsoleMessage) -> None:
        known = any(f"status of {status}" in told.text for status in self.expected)
        if told.type in ("error", "warning") and not known:
            self.faults.append(f"{told.type}: {told.text} {told.location}")

    def _asked(self, asked: Request) -> None:
        if not asked.url.startswith(self._origin):
            self.faults.append(f"asks {asked.url}")

    def _failed(self, asked: Request) -> None:
        # A page that is left before its icon has come does not wait for it.
        if asked.failure != "net::ERR_ABORTED":
            self.faults.append(f"failed {asked.url}: {asked.failure}")

    def _answered(self, got: Response) -> None:
        if got.status >= 400 and got.status not in self.expected:
            self.faults.append(f"{got.status} of {got.url}")

    def go(self, address: str) -> Page:
        self.page.goto(address, wait_until="load")
        return self.page

    def follow(self, there: Locator) -> None:
        """Click on what leads to another page."""
        with self.page.expect_navigation(wait_until="load"):
            there.click()

    def text(self) -> str:
        return self.page.locator("body").inner_text()

    def check(self) -> None:
        """Demand that nothing happened that should not, nor is going to."""
        self.page.wait_for_load_state("networkidle")
        if self._scripts:
            assert self.page.evaluate("window.violations") == []
            assert self.page.evaluate("document.scripts.length") == 0
        assert self.faults == []


@pytest.fixture
def watch(browser: Browser, served: Served, request: pytest.FixtureRequest) -> Iterator[Watched]:
    """A page that is logged in by the link; with scripts, unless the test says without."""
    watched = Watched(browser, served.origin, scripts=getattr(request, "param", True))
    watched.go(served.link)
    yield watched
    watched.check()
    watched.context.close()


both = pytest.mark.parametrize("watch", [True, False], indirect=True, ids=["scripts", "none"])


@both
def test_the_link_logs_in_and_leaves_no_token_behind(watch: Watched, served: Served) -> None:
    """The printed link leads to the listing, and its token is not in the address any more."""
    assert watch.page.url == f"{served.origin}/"
    assert watch.page.title() == "Sessions"
    assert watch.page.locator("h1").inner_text() == "Sessions"
    (cookie,) = watch.context.cookies()
    assert cookie.get("httpOnly")
    assert cookie.get("sameSite") == "Strict"


@pytest.mark.parametrize("watch", [True, *soaked(False)], indirect=True, ids=["scripts", "none"])
def test_hostile_sessions_are_text(watch: Watched, served: Served) -> None:
    """No page of a session with hostile content runs, loads, opens or says anything of its own."""
    for number, text in enumerate(HOSTILE):
        page = watch.go(f"{served.origin}/sessions/{segment_of(f'h{number} {text}')}")
        assert page.locator("li.event").count() > 15
        for element in ("script", "img", "iframe", "object", "style", "base", "svg", "textarea"):
            assert page.locator(element).count() == 0, element
        for place in range(3):
            page.locator("details summary").nth(place).click()
        assert page.locator("details[open] pre").first.is_visible()
    watch.check()
    shown = watch.go(f"{served.origin}/sessions/{segment_of(f'h0 {HOSTILE[0]}')}")
    assert HOSTILE[0] in shown.locator("h1").inner_text()
    assert HOSTILE[0] in shown.locator(".event.user pre").first.inner_text()


@both
def test_a_person_gets_from_the_listing_to_an_event(watch: Watched) -> None:
    """Pages, filters, searches and hits are reached by links and forms alone."""
    page = watch.page
    first = page.locator(".row").count()
    watch.follow(page.get_by_role("link", name="Next page"))
    assert 0 < page.locator(".row").count() < first
    watch.follow(page.get_by_role("link", name="perdure", exact=True))

    page.get_by_label("Sessions", exact=True).fill("Small 7")
    watch.follow(page.get_by_role("button", name="List"))
    assert page.locator(".row .title").first.inner_text() == "Small 7"
    assert page.get_by_label("Sessions", exact=True).input_value() == "Small 7"

    page.get_by_label("Sessions", exact=True).fill("")
    page.get_by_label("Status").select_option("damaged")
    watch.follow(page.get_by_role("button", name="List"))
    assert "No such sessions" in watch.text()

    page.get_by_label("Said", exact=True).fill("number333")
    watch.follow(page.get_by_role("button", name="Search"))
    assert page.locator("mark").first.inner_text() == "number333"
    watch.follow(page.locator(".row .title").first)
    assert page.url.endswith("#e333")
    assert "sentence number333 of it" in page.locator("#e333").inner_text()
    assert page.locator("#e333").evaluate("e => e.matches(':target')")


@both
def test_a_long_session_is_read_page_by_page(watch: Watched, served: Served) -> None:
    """From the newest page the older ones are reached, the first one, and the newest again."""
    page = watch.go(f"{served.origin}/sessions/long")
    assert "sentence number699 of it" in watch.text()
    assert page.locator(".event").count() == 200
    assert page.get_by_role("link", name="Newer").count() == 0
    watch.follow(page.get_by_role("link", name="Older").first)
    assert "sentence number499 of it" in watch.text()
    assert "sentence number500 of it" not in watch.text()
    watch.follow(page.get_by_role("link", name="First").first)
    assert "sentence number0 of it" in watch.text()
    watch.follow(page.get_by_role("link", name="Newer").first)
    assert "sentence number200 of it" in watch.text()
    watch.follow(page.get_by_role("link", name="Newest").first)
    assert "sentence number699 of it" in watch.text()
    watch.follow(page.get_by_role("link", name="Event 650 alone"))
    assert page.locator(".event").count() == 1
    watch.follow(page.get_by_role("link", name="What stands around it").first)
    assert "sentence number651 of it" in watch.text()


def test_the_keyboard_goes_through_the_page_in_its_order(watch: Watched, served: Served) -> None:
    """The focus goes from top to bottom, can be seen, and skips to the content at once."""
    page = watch.go(f"{served.origin}/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    assert (page.locator(".skip").bounding_box() or {"x": -1})["x"] > 0
    names, tops = [], []
    for _ in range(8):
        page.keyboard.press("Tab")
        names.append(
            page.evaluate("document.activeElement.name || document.activeElement.textContent")
        )
        tops.append(page.evaluate("document.activeElement.getBoundingClientRect().top"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
    assert names[:6] == ["perdure", "q", "status", "List", "said", "Search"]
    assert tops == sorted(tops) or tops[6:] == sorted(tops[6:])
    page.locator(".skip").press("Enter")
    assert page.url.endswith("#main")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [320, 1100, *soaked(390)])
def test_nothing_is_wider_than_the_screen(
    watch: Watched, served: Served, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    """On a phone and on a desk, light and dark, a page scrolls down and not to the side."""
    page = watch.page
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    for path in ("/", "/?said=sentence", f"/sessions/{segment_of(f'h0 {HOSTILE[0]}')}"):
        watch.go(served.origin + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = [int(part) for part in re.findall(r"\d+", ground)][:3]
        assert (min(light) > 200) == (scheme == "light")
    page.screenshot(path=str(tmp_path / "page.png"))
    assert (tmp_path / "page.png").stat().st_size > 1000


def test_texts_stand_out_from_their_ground(watch: Watched, served: Served) -> None:
    """Light and dark, words have a contrast of 4.5 to 1 against what is behind them (WCAG 2.2)."""
    for scheme in SCHEMES:
        watch.page.emulate_media(color_scheme=scheme)
        for path in ("/", f"/sessions/{segment_of(f'h0 {HOSTILE[0]}')}"):
            watch.go(served.origin + path)
            assert watch.page.evaluate(FAINT) == []


FAINT = """() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(part => {
      const c = part / 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = numbers(getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility()) continue;
    const one = light(numbers(getComputedStyle(e).color)), other = light(behind(e));
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) faint.push(`${e.tagName} ${e.className} ${ratio}`);
  }
  return [...new Set(faint)];
}"""


# --- logging in -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scripts", [True, False])
def test_a_token_is_asked_for(tmp_path: Path, browser: Browser, scripts: bool) -> None:
    """Without a token nothing is shown but a form for it; a wrong one is refused, a right one not.

    A token that was revoked shows nothing any more.
    """
    place = tmp_path / "store"
    with perdure.open(place) as store:
        with store.create("secret") as session:
            session.append("user/message", said("a secret sentence"))
        tokens = Tokens(store)
        token, text = tokens.create("mine")
    with serving(place) as served:
        assert "token" not in served.link
        watch = Watched(browser, served.origin, scripts=scripts)
        watch.expected = {401}
        page = watch.go(f"{served.origin}/sessions/secret")
        assert "secret sentence" not in page.content()
        for wrong in ("nonsense", text[:-1] + ("0" if text[-1] != "0" else "1")):
            page.get_by_label("Token").fill(wrong)
            watch.follow(page.get_by_role("button", name="Log in"))
            assert page.get_by_role("alert").count() == 1
            assert wrong not in page.content()
        page.get_by_label("Token").fill(text)
        watch.follow(page.get_by_role("button", name="Log in"))
        assert page.locator(".row .title").inner_text() == "a secret sentence"
        watch.follow(page.locator(".row .title"))
        assert "a secret sentence" in page.locator(".event.user pre").inner_text()
        with perdure.open(place) as store:
            Tokens(store).revoke(token.id)
        page = watch.go(f"{served.origin}/sessions/secret")
        assert "secret sentence" not in page.content()
        assert page.get_by_label("Token").count() == 1
        watch.check()
        watch.context.close()


def test_what_is_not_there_has_a_page(watch: Watched, served: Served) -> None:
    """A session that is not stored, and a query that cannot be, say so and lead back."""
    watch.expected = {400, 404}
    for path in ("/sessions/none", "/?status=nope", "/sessions/long?from=x"):
        page = watch.go(served.origin + path)
        assert page.get_by_role("alert").count() == 1
        watch.follow(page.get_by_role("link", name="To the sessions"))
        assert page.title() == "Sessions"


# --- finding a browser ----------------------------------------------------------------------------


def find(folder: Path, **programs: str) -> "subprocess.CompletedProcess[str]":
    """Run the script on a machine that has only these programs."""
    folder.mkdir(exist_ok=True)
    for name, body in programs.items():
        (folder / name.replace("_", "-")).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name.replace("_", "-")).chmod(0o755)
    shell = shutil.which("sh")
    assert shell is not None
    return subprocess.run(
        [shell, str(SCRIPT)],
        env={"PATH": str(folder), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


INSTALLS = 'printf "#!/bin/sh\\n" > "$HOME/chromium"; /bin/chmod 755 "$HOME/chromium"'


def test_a_browser_that_starts_is_found(tmp_path: Path) -> None:
    """The first browser on the PATH that starts is used; a stand-in that does not is passed by."""
    folder = tmp_path / "bin"
    done = find(folder, chromium="exit 1", google_chrome="echo 'Chrome 140'")
    assert (done.returncode, done.stdout) == (0, f"{folder}/google-chrome\n")
    done = find(folder, chromium="echo 'Chromium 140'")
    assert (done.returncode, done.stdout) == (0, f"{folder}/chromium\n")


@pytest.mark.parametrize(
    ("programs", "made"),
    [
        ({"id": "echo 0", "apt_get": INSTALLS}, True),
        # The lists of packages are old: the first try fails.
        (
            {
                "id": "echo 0",
                "apt_get": f'case $1 in update) : > "$HOME/new";; *) [ -e "$HOME/new" ] || exit 1;'
                f" {INSTALLS};; esac",
            },
            True,
        ),
        ({"id": "echo 7", "sudo": 'shift; [ "$1" = true ] || "$@"', "apt_get": INSTALLS}, True),
        ({"id": "echo 7", "sudo": "exit 1", "apt_get": INSTALLS}, False),
        ({"id": "echo 7", "apt_get": INSTALLS}, False),
        ({"id": "echo 0", "apt_get": "exit 100"}, False),
        ({"id": "echo 0", "apt_get": ":"}, False),
        ({"id": "echo 0"}, False),
    ],
)
def test_a_browser_is_installed_where_that_can_be(
    tmp_path: Path, programs: dict[str, str], made: bool
) -> None:
    """Without one it is installed by whoever may; else what to install is said, and it fails."""
    done = find(tmp_path / "bin", true="exit 0", **programs)
    if made:
        assert (done.returncode, done.stdout) == (0, f"{tmp_path}/bin/chromium\n")
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert "apt-get install chromium" in done.stderr


def test_the_script_can_be_run() -> None:
    """The script is plain sh, of which every shell takes each line."""
    shell = shutil.which("sh")
    assert shell is not None
    assert subprocess.run([shell, "-n", str(SCRIPT)], check=False).returncode == 0
    assert os.access(SCRIPT, os.R_OK)
