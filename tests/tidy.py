"""Checkers of source code: each takes a parsed module and yields its complaints."""

import ast
import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500
LINE_LENGTH_MAX = 100

VAGUE_NAMES = frozenset({"common", "helper", "helpers", "misc", "util", "utils"})
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
DESIGN_HEADINGS = ("Purpose", "Invariants", "Crash story", "Trade-offs")

CODE_RUNNERS = frozenset({"eval", "exec"})
CODE_RUNNING_MODULES = frozenset({"marshal", "pickle", "shelve", "sqlite3"})

WORLD_READERS = frozenset(
    {
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "os.environ",
        "os.getenv",
        "os.getpid",
        "os.urandom",
        "socket.gethostname",
        "time.monotonic",
        "time.monotonic_ns",
        "time.sleep",
        "time.time",
        "time.time_ns",
        "uuid.uuid1",
        "uuid.uuid4",
    }
)
WORLD_READING_MODULES = frozenset({"random", "secrets"})

# After each of these the disk is in a state of its own, in which a process can die.
CRASH_WINDOWS = frozenset(
    {
        "os.fdatasync",
        "os.fsync",
        "os.ftruncate",
        "os.link",
        "os.makedirs",
        "os.mkdir",
        "os.pwrite",
        "os.pwritev",
        "os.remove",
        "os.removedirs",
        "os.rename",
        "os.renames",
        "os.replace",
        "os.rmdir",
        "os.symlink",
        "os.truncate",
        "os.unlink",
        "os.write",
        "os.writev",
    }
)
OS_WRITERS = CRASH_WINDOWS | frozenset(
    {
        "os.chmod",
        "os.chown",
        "os.copy_file_range",
        "os.fchmod",
        "os.fchown",
        "os.lchown",
        "os.mkfifo",
        "os.mknod",
        "os.posix_fallocate",
        "os.removexattr",
        "os.sendfile",
        "os.setxattr",
        "os.splice",
        "os.utime",
    }
)
FILE_WRITING_MODULES = frozenset({"shutil", "tempfile"})
PATH_WRITERS = frozenset(
    {
        "chmod",
        "hardlink_to",
        "lchmod",
        "mkdir",
        "rename",
        "replace",
        "rmdir",
        "symlink_to",
        "touch",
        "unlink",
        "write_bytes",
        "write_text",
    }
)
OS_OPEN_WRITE_FLAGS = frozenset(
    {"O_APPEND", "O_CREAT", "O_RDWR", "O_TMPFILE", "O_TRUNC", "O_WRONLY"}
)


@dataclasses.dataclass(frozen=True)
class Module:
    """One source file: where it lies below the checkout, its text and its syntax tree."""

    path: PurePosixPath
    text: str
    tree: ast.Module

    @classmethod
    def parse(cls, text: str, path: str = "src/perdure/example.py") -> "Module":
        return cls(PurePosixPath(path), text, ast.parse(text))

    def below(self, *folders: str) -> bool:
        return any(self.path.is_relative_to(folder) for folder in folders)

    def at(self, node: ast.AST, complaint: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {complaint}"


Checker = Callable[[Module], Iterator[str]]


# --- names --------------------------------------------------------------------------------------


class Names:
    """What the names of a module stand for, as far as its imports tell."""

    def __init__(self, tree: ast.Module) -> None:
        self._meaning: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    self._meaning[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self._meaning[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def qualified(self, node: ast.AST) -> str:
        """Return the dotted name that `node` reads, or an empty string when it is no name."""
        if isinstance(node, ast.Name):
            return self._meaning.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.qualified(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""


def imported_modules(module: Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield node, f"{node.module}.{alias.name}"


def used_names(module: Module) -> Iterator[tuple[ast.AST, str]]:
    names = Names(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name | ast.Attribute):
            yield node, names.qualified(node)
    yield from imported_modules(module)


def _uses(module: Module, banned: frozenset[str], packages: frozenset[str]) -> Iterator[str]:
    found = {
        (getattr(node, "lineno", 1), name) for node, name in used_names(module) if name in banned
    } | {
        (getattr(node, "lineno", 1), name)
        for node, name in imported_modules(module)
        if name.partition(".")[0] in packages
    }
    for line, name in sorted(found):
        yield f"{module.path}:{line}: {name}"


# --- size and shape -----------------------------------------------------------------------------


def long_functions(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, FunctionNode):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield module.at(node, f"{node.name} has {lines} lines")


def long_modules(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES_MAX:
        yield f"{module.path}: {lines} lines"


def long_lines(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), start=1):
        if len(line) > LINE_LENGTH_MAX:
            yield f"{module.path}:{number}: {len(line)} characters"


def unfinished_work(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), start=1):
        if mark := UNFINISHED.search(line):
            yield f"{module.path}:{number}: {mark[0]}"


def vague_names(module: Module) -> Iterator[str]:
    for part in (*module.path.parent.parts, module.path.stem):
        if part.strip("_") in VAGUE_NAMES:
            yield f"{module.path}: {part} does not say what is inside"


def missing_docstring(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.path}: no docstring"


def _binds_names(tree: ast.Module) -> bool:
    return any(not isinstance(node, ast.Expr) for node in tree.body)


def missing_all(module: Module) -> Iterator[str]:
    """Complain of a public module that leaves open which of its names are public."""
    names = {part for part in module.path.with_suffix("").parts if part != "__init__"}
    if any(name.startswith("_") for name in names) or not _binds_names(module.tree):
        return
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return
    yield f"{module.path}: no __all__"


# --- what may be done where ---------------------------------------------------------------------


def asserts(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assert):
            yield module.at(node, "assert")


def stored_code(module: Module) -> Iterator[str]:
    yield from _uses(module, CODE_RUNNERS, CODE_RUNNING_MODULES)


def world_readers(module: Module) -> Iterator[str]:
    yield from _uses(module, WORLD_READERS, WORLD_READING_MODULES)


def sleeps(module: Module) -> Iterator[str]:
    yield from _uses(module, frozenset({"time.sleep"}), frozenset())


def _may_write(mode: ast.expr | None) -> bool:
    if mode is None:
        return False
    if isinstance(mode, ast.Constant) and isinstance(mode.value, str):
        return bool(set(mode.value) & set("wax+"))
    return True  # not a literal: it cannot be told


def _argument(call: ast.Call, position: int, keyword: str) -> ast.expr | None:
    for given in call.keywords:
        if given.arg == keyword:
            return given.value
    return call.args[position] if len(call.args) > position else None


def _looks_like_path_method(call: ast.Call, method: str) -> bool:
    """Tell path.replace(target) from text.replace(old, new) and moment.replace(hour=0)."""
    if method not in {"rename", "replace"}:
        return True
    keywords = [given.arg for given in call.keywords]
    return (len(call.args), keywords) in [(1, []), (0, ["target"])]


def _written_by(call: ast.Call, names: Names) -> str:
    """Return the name of what the call writes with, or an empty string when it only reads."""
    name = names.qualified(call.func)
    if name in {"open", "io.open", "os.fdopen"}:
        return name if _may_write(_argument(call, 1, "mode")) else ""
    if name == "os.open":
        flags = {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
        flags |= {names.qualified(node).rpartition(".")[2] for node in ast.walk(call)}
        return name if flags & OS_OPEN_WRITE_FLAGS else ""
    if name.partition(".")[0] == "os" or not isinstance(call.func, ast.Attribute):
        return ""  # names of os are found wherever they stand, called or not
    method = call.func.attr
    if method in PATH_WRITERS and _looks_like_path_method(call, method):
        return f".{method}"
    modes = [_argument(call, 0, "mode"), _argument(call, 1, "mode")]
    if method == "open" and any(_is_mode(mode) and _may_write(mode) for mode in modes):
        return ".open"
    return ""


def _is_mode(mode: ast.expr | None) -> bool:
    """Tell path.open("w") from store.open("memory:") and store.open(url)."""
    return (
        isinstance(mode, ast.Constant)
        and isinstance(mode.value, str)
        and re.fullmatch(r"[rwaxbt+U]+", mode.value) is not None
    )


def file_writes(module: Module) -> Iterator[str]:
    yield from _uses(module, OS_WRITERS, FILE_WRITING_MODULES)
    names = Names(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and (written := _written_by(node, names)):
            yield module.at(node, f"{written}(...) writes")


# --- crash points -------------------------------------------------------------------------------

CRASH_POINT = "perdure.durable.crash.point"


def _own_calls(function: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of a function without those of the functions defined inside it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.Call):
            yield child
        if not isinstance(child, FunctionNode):
            yield from _own_calls(child)


def _literal_name(call: ast.Call) -> str | None:
    name = _argument(call, 0, "name")
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        return name.value
    return None


def crash_points(module: Module) -> Iterator[tuple[str, str]]:
    """Yield the name and the place of every crash point that is named by a literal."""
    names = Names(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and names.qualified(node.func) == CRASH_POINT:
            name = _literal_name(node)
            if name is not None:
                yield name, module.at(node, name)


def unnamed_crash_windows(module: Module) -> Iterator[str]:
    names = Names(module.tree)
    scopes = [module.tree, *(n for n in ast.walk(module.tree) if isinstance(n, FunctionNode))]
    for scope in scopes:
        calls = [(names.qualified(call.func), call) for call in _own_calls(scope)]
        windows = [(name, call) for name, call in calls if name in CRASH_WINDOWS]
        named = any(name == CRASH_POINT and _literal_name(call) for name, call in calls)
        if windows and not named:
            name, call = windows[0]
            yield module.at(call, f"{name} in {getattr(scope, 'name', 'the module')}")


# --- tests and documents ------------------------------------------------------------------------


def tests_without_requirement(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, FunctionNode) and node.name.startswith("test_"):
            first_line = (ast.get_docstring(node) or "").partition("\n")[0]
            if not first_line.endswith("."):
                yield module.at(node, f"{node.name} does not start with a sentence")


def missing_headings(text: str) -> list[str]:
    """Return the headings that a DESIGN.md lacks."""
    found = {line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#")}
    return [heading for heading in DESIGN_HEADINGS if heading not in found]


def mention_of_folder(folder: str) -> re.Pattern[bytes]:
    """Return a pattern that finds the path of a folder deep enough to be told from a word."""
    if folder.count("/") < 2:
        return re.compile(rb"(?!)")
    return re.compile(re.escape(folder.encode()) + rb"(?![\w.-])")
