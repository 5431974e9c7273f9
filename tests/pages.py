"""What tests of pages share: a reader of HTML that knows what the templates have."""

import re
from html.parser import HTMLParser
from pathlib import Path

TEMPLATES = Path(__file__).parent.parent / "src/perdure/http/server/templates"

_SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.html"))
TAGS = frozenset(re.findall(r"<([a-z][a-z0-9]*)", _SOURCE))
ATTRIBUTES = frozenset(re.findall(r"\s([a-z-]+)=\"", _SOURCE)) | {
    "autofocus",
    "required",
    "selected",
}
OWN_PATH = re.compile(
    r"#main|/static/(style\.css|icon\.svg)|/(sessions/[A-Za-z0-9_.=-]+)?"
    r"(\?[A-Za-z0-9_.=&%+*-]+)?(#e[0-9]+)?"
)
_EMPTY = frozenset({"input", "link", "meta"})


class Page(HTMLParser):
    """A page, parsed; it refuses whatever no template has."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.ids: list[str] = []
        self.inputs: dict[str, str] = {}
        self.texts: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        if self._open:
            self.faults.append(f"not closed: {self._open}")
        if len(set(self.ids)) != len(self.ids):
            self.faults.append("an id twice")

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.faults.append(f"element {tag}")
        for name, value in attrs:
            if name not in ATTRIBUTES:
                self.faults.append(f"attribute {name} of {tag}")
            if name in ("href", "action", "src") and not self._is_own(tag, value or ""):
                self.faults.append(f"{name} {value}")
        given = dict(attrs)
        if tag == "a":
            self.links.append(given.get("href") or "")
        if tag == "input":
            self.inputs[given.get("name") or ""] = given.get("value") or ""
        if given.get("id"):
            self.ids.append(given["id"] or "")
        if tag not in _EMPTY:
            self._open.append(tag)

    @staticmethod
    def _is_own(tag: str, value: str) -> bool:
        return value in ("/", "/login") if tag == "form" else bool(OWN_PATH.fullmatch(value))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"end of {tag}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.faults.append(f"comment {data}")

    def handle_decl(self, decl: str) -> None:
        if decl != "doctype html":
            self.faults.append(f"declaration {decl}")

    def handle_pi(self, data: str) -> None:
        self.faults.append(f"instruction {data}")

    def unknown_decl(self, data: str) -> None:
        self.faults.append(f"declaration {data}")
