"""Write the golden stores of the current format anew: `python -m tests.golden.make`.

Only before the first release: afterwards the files of a released format stay for ever.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import perdure
from perdure.model.header import FORMAT, Parent
from perdure.testing.contract import Clockwork

__all__ = ["FOLDER", "MEDIA", "Stopped", "contents", "hashes", "opened"]

FOLDER = Path(__file__).parent / f"format-{FORMAT}"
MEDIA = {
    "dir-raw": ("store", {"encoding": "raw"}),
    "dir-zst": ("store", {"encoding": "zst"}),
    "sqlite": ("store.db", {}),
    "bundle": ("store.perdure", {}),
}
"""Each medium: the name of its store in its folder, and how a new one is opened."""


class Stopped(Clockwork):
    """A clock that stands still: a medium may look at it as often as it likes."""

    def now_ms(self) -> int:
        """The second in which the golden files were made."""
        return 1_700_000_000_000


LARGE = bytes(range(256)) * 1200


def opened(medium: str, root: Path, **options: Any) -> perdure.Store:
    """The store of a medium that is kept in a folder."""
    name, made_with = MEDIA[medium]
    scheme = medium.partition("-")[0]
    return perdure.open(f"{scheme}:{root / name}", **{**made_with, **options})


def fill(store: perdure.Store) -> None:
    """One of everything that a store can hold."""
    with store.create("plain", cwd="/work", preset="coder", config={"model": "m", "n": 1}) as s:
        s.append("user/message", {"content": [{"type": "text", "text": "héllo \U0001f600"}]})
        s.append("odd", {"big": 2**80, "half": "\ud800", "float": 1e300, "none": None}, key="k")
        s.append_many([{"type": "assistant/delta", "data": {"text": f"w{n} "}} for n in range(30)])
        s.append("artifact/saved", {"blob": s.put_blob(b"small", pinned=True)}, agent="a", turn="t")
        s.append("artifact/saved", {"blob": s.put_blob(LARGE)}, ignorable=True)
    with store.create("interrupted") as s:
        s.append("turn/start", {}, turn="t1")
        s.append("tool/call", {"id": "c1", "name": "bash"}, turn="t1")
    with store.create(
        "child", parent=Parent("plain", 3), origin="subagent", depth=1, vocabulary=None
    ) as s:
        s.append("note", "from below")
    with store.create("Ümlaut/../x") as s:
        s.append("note", 1)
    with store.namespace("team", "a/b").create("plain") as s:
        s.append("note", "of a namespace")
    with store.create("gone") as s:
        s.append("note", "deleted")
    store.delete("gone")
    with store.create("done") as s:
        s.append("note", "archived")
    store.archive("done")


def contents(store: perdure.Store) -> dict[str, Any]:
    """What is in a store, whatever its medium: headers, positions, events, content."""
    found: dict[str, Any] = {"trash": [each.id for each in store.trash()]}
    for name, place in (("", store), ("team/a/b", store.namespace("team", "a/b"))):
        for entry in place.list():
            seen = place.inspect(entry.id)
            assert seen.header is not None
            assert seen.position is not None
            found[f"{name}:{entry.id}"] = {
                "header": seen.header.as_dict(),
                "position": list(seen.position),
                "status": place.verify(entry.id).status,
                "events": [event.as_dict() for event in place.read_from(entry.id)],
                "closers": [event.as_dict() for event in seen.closers],
                "blobs": [[blob.digest, blob.size] for blob in place.blobs(entry.id)],
            }
    return dict(sorted(found.items()))


def hashes(root: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def main() -> None:
    """Write all of it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for medium in MEDIA:
        root = FOLDER / medium
        root.mkdir(0o700, parents=True)
        with opened(medium, root, runtime=Stopped()) as store:
            fill(store)
        with opened(medium, root, runtime=Stopped()) as store:
            listed = json.dumps(contents(store), indent=1) + "\n"
        known = FOLDER / "contents.json"
        if not known.exists():
            known.write_text(listed, encoding="ascii")
        assert known.read_text(encoding="ascii") == listed, medium
    list_ = "".join(f"{digest}  {name}\n" for name, digest in hashes(FOLDER).items())
    (FOLDER / "SHA256SUMS").write_text(list_, encoding="ascii")


if __name__ == "__main__":
    main()
