"""Claude Code: sample sessions as the lens reads them, in full."""

from pathlib import Path

import pytest

from perdure.lenses import SourceFacts, lens_of
from perdure.lenses.claude_code import ClaudeCode
from perdure.testing.providers import VALIDATORS
from perdure.views.conversation import agents, messages
from perdure.views.providers import FORMATS
from perdure.views.usage import Totals
from tests.claude_code_lines import FOLDER, rows, sample, spent
from tests.lens_lines import Row, texts, view

SAMPLES = sorted(path for path in FOLDER.rglob("*.json*") if path.is_file())
SONNET = "claude-sonnet-4-5-20250929"
OPUS = "claude-opus-4-6"
CREATE = "40523152-693d-4e07-8434-7f0c8f28cc05"
UPDATE = "1baa8499-96cb-4978-a5c7-10cc98d3b517"
DELETE = "6fff5bfd-5653-4fde-bf50-2ffaaa3a5a9b"
START = "5440873c-2d59-4c8c-88ec-c0a8c38a027d"
SCROLL = "f643538d-cf06-4b9a-9bb0-9ae5c26ea07a"

HELLO: list[Row] = [
    (1, "turn", CREATE),
    (1, "user", CREATE, ["create hello.py, md and js"]),
    (
        2,
        "model",
        CREATE,
        [
            ("I'll create three simple files: hello.py, hello.md, and hell", 65),
            (
                "toolu_bdrk_01QRsKSkDDpcbN5DcZGF6N69",
                "Write",
                ('{"file_path": "/tmp/private/hello.py", "content": "#!/usr/bi', 166),
            ),
            (
                "toolu_bdrk_016tbodT5CtBRJqqi7vKsFvG",
                "Write",
                ('{"file_path": "/tmp/private/hello.md", "content": "# Hello\\n', 205),
            ),
            (
                "toolu_bdrk_01AE52DNTFXnbYCYZbNxhzWc",
                "Write",
                ('{"file_path": "/tmp/private/hello.js", "content": "#!/usr/bi', 144),
            ),
        ],
        {
            "model": SONNET,
            "response": "msg_bdrk_013SYvCzWGkVVXBeihWmL3gF",
            "usage": {"input": 35069, "output": 395, "cached": 0},
        },
    ),
    (7, "call", CREATE, "toolu_bdrk_01QRsKSkDDpcbN5DcZGF6N69"),
    (
        7,
        "result",
        CREATE,
        "toolu_bdrk_01QRsKSkDDpcbN5DcZGF6N69",
        ["File created successfully at: /tmp/private/hello.py"],
    ),
    (9, "call", CREATE, "toolu_bdrk_016tbodT5CtBRJqqi7vKsFvG"),
    (
        9,
        "result",
        CREATE,
        "toolu_bdrk_016tbodT5CtBRJqqi7vKsFvG",
        ["File created successfully at: /tmp/private/hello.md"],
    ),
    (11, "call", CREATE, "toolu_bdrk_01AE52DNTFXnbYCYZbNxhzWc"),
    (
        11,
        "result",
        CREATE,
        "toolu_bdrk_01AE52DNTFXnbYCYZbNxhzWc",
        ["File created successfully at: /tmp/private/hello.js"],
    ),
    (
        12,
        "model",
        CREATE,
        [("Done! I've created three files:\n\n1. **hello.py** - Python sc", 298)],
        {
            "model": SONNET,
            "response": "msg_bdrk_0123PinQPTX8hVMAsUpLZEeW",
            "usage": {"input": 35666, "output": 82, "cached": 35089},
        },
    ),
    (14, "turn", UPDATE),
    (14, "user", UPDATE, ["update py with one liner comment"]),
    (
        15,
        "model",
        UPDATE,
        [("toolu_bdrk_019rEFxU8hyZyoD9foULmY5m", "Read", '{"file_path": "/tmp/private/hello.py"}')],
        {
            "model": SONNET,
            "response": "msg_bdrk_01UZFPkF7fogbUoqJXzQpVB7",
            "usage": {"input": 35757, "output": 87, "cached": 35745},
        },
    ),
    (16, "call", UPDATE, "toolu_bdrk_019rEFxU8hyZyoD9foULmY5m"),
    (
        16,
        "result",
        UPDATE,
        "toolu_bdrk_019rEFxU8hyZyoD9foULmY5m",
        [("     1→#!/usr/bin/env python3\n     2→\n     3→def main():\n   ", 498)],
    ),
    (
        17,
        "model",
        UPDATE,
        [
            (
                "toolu_bdrk_01WC6KiMbojN1sDscXqkkFWe",
                "Edit",
                ('{"file_path": "/tmp/private/hello.py", "old_string": "#!/usr', 178),
            )
        ],
        {
            "model": SONNET,
            "response": "msg_bdrk_016b4ZcBsrZrp2HjZAnzT3Qy",
            "usage": {"input": 35998, "output": 153, "cached": 35754},
        },
    ),
    (18, "call", UPDATE, "toolu_bdrk_01WC6KiMbojN1sDscXqkkFWe"),
    (
        18,
        "result",
        UPDATE,
        "toolu_bdrk_01WC6KiMbojN1sDscXqkkFWe",
        [("The file /tmp/private/hello.py has been updated. Here's the ", 306)],
    ),
    (
        19,
        "model",
        UPDATE,
        [("Done! I've added a one-liner comment to hello.py: `# Simple ", 80)],
        {
            "model": SONNET,
            "response": "msg_bdrk_01XgV42Lj5KTdQZsicnLj88J",
            "usage": {"input": 36393, "output": 1, "cached": 35992},
        },
    ),
    (21, "turn", DELETE),
    (21, "user", DELETE, ["delete js"]),
    (
        22,
        "model",
        DELETE,
        [
            (
                "toolu_bdrk_01Siz9pfbo7dpNst33AQai4F",
                "Bash",
                ('{"command": "rm hello.js", "description": "Delete hello.js f', 65),
            )
        ],
        {
            "model": SONNET,
            "response": "msg_bdrk_015MEiYHdV8KyvembohsRFYg",
            "usage": {"input": 36423, "output": 76, "cached": 35659},
        },
    ),
    (23, "call", DELETE, "toolu_bdrk_01Siz9pfbo7dpNst33AQai4F"),
    (23, "result", DELETE, "toolu_bdrk_01Siz9pfbo7dpNst33AQai4F", []),
    (
        24,
        "model",
        DELETE,
        ["Done! I've deleted hello.js."],
        {
            "model": SONNET,
            "response": "msg_bdrk_01RHTZCNU3ZCnr75YV8tJ8DE",
            "usage": {"input": 36526, "output": 12, "cached": 36388},
        },
    ),
    (24, "end", DELETE, "completed"),
]

PHOENIX: list[Row] = [
    (3, "turn", START),
    (3, "user", START, ["start phoenix in background"]),
    (
        4,
        "model",
        START,
        [
            (
                "toolu_018GZVh9ymkrdx1TnR8reg5Y",
                "Bash",
                ('{"command": "mix phx.server", "description": "Start Phoenix ', 109),
            )
        ],
        {
            "model": OPUS,
            "response": "msg_0167kgZUrgcT7dg7uZK7hVSg",
            "usage": {"input": 25801, "output": 27, "cached": 17915},
        },
    ),
    (10, "call", START, "toolu_018GZVh9ymkrdx1TnR8reg5Y"),
    (
        10,
        "result",
        START,
        "toolu_018GZVh9ymkrdx1TnR8reg5Y",
        [("Command running in background with ID: bae407b. Output is be", 142)],
    ),
    (
        11,
        "model",
        START,
        [
            ("Phoenix server is starting in the background.\n\nLet me check ", 83),
            (
                "toolu_01FZ9TWbiy1LPzHm1AAyUazo",
                "Bash",
                ('{"command": "tail -5 /tmp/claude-1000/-home-marco-projects-s', 136),
            ),
        ],
        {
            "model": OPUS,
            "response": "msg_01NUXWeNeduGBJVib8gyo9kz",
            "usage": {"input": 26007, "output": 1, "cached": 25798},
        },
    ),
    (16, "call", START, "toolu_01FZ9TWbiy1LPzHm1AAyUazo"),
    (
        16,
        "result",
        START,
        "toolu_01FZ9TWbiy1LPzHm1AAyUazo",
        [("  Serializer: Phoenix.Socket.V2.JSONSerializer\n  Parameters:", 155)],
    ),
    (17, "user", START, ["[Request interrupted by user]"], "interruption"),
    (17, "end", START, "aborted"),
    (
        19,
        "user",
        START,
        [("<local-command-caveat>Caveat: The messages below were genera", 245)],
        "caveat",
    ),
    (
        20,
        "user",
        START,
        [("<command-name>/mcp</command-name>\n            <command-messa", 126)],
        "command",
    ),
    (
        21,
        "user",
        START,
        [("<local-command-stdout>Reconnected to tidewave.</local-comman", 69)],
        "command-output",
    ),
    (
        22,
        "user",
        START,
        [("<command-name>/mcp</command-name>\n            <command-messa", 126)],
        "command",
    ),
    (
        23,
        "user",
        START,
        [("<local-command-stdout>MCP dialog dismissed</local-command-st", 65)],
        "command-output",
    ),
    (25, "turn", SCROLL),
    (25, "user", SCROLL, [("scrolling back in xterm.js still does not work (maybe becaus", 121)]),
    (
        26,
        "model",
        SCROLL,
        [
            "\n\n",
            ("thinking", ("The user wants me to research why scrolling in xterm.js does", 155)),
            (
                "toolu_01DKTWcKpZ2ksZQmoKKfxiw6",
                "WebSearch",
                ('{"query": "xterm.js scroll not working embedded page capture', 77),
            ),
            ("toolu_01JJds55jYrYwd9TktNGndRY", "Glob", '{"pattern": "assets/js/**/*.js"}'),
        ],
        {
            "model": OPUS,
            "response": "msg_01LbyjvsALGe2gMsTgDSj7e6",
            "usage": {"input": 26507, "output": 11, "cached": 18014},
        },
    ),
    (30, "call", SCROLL, "toolu_01JJds55jYrYwd9TktNGndRY"),
    (
        31,
        "result",
        SCROLL,
        "toolu_01JJds55jYrYwd9TktNGndRY",
        ["/home/marco/projects/spotter/assets/js/app.js"],
    ),
    (32, "call", SCROLL, "toolu_01DKTWcKpZ2ksZQmoKKfxiw6"),
    (
        32,
        "result",
        SCROLL,
        "toolu_01DKTWcKpZ2ksZQmoKKfxiw6",
        [('Web search results for query: "xterm.js scroll not working e', 3061)],
    ),
    (
        33,
        "model",
        SCROLL,
        [
            (
                "toolu_01VpPeBD2ziigLLpybShAGoU",
                "Read",
                ('{"file_path": "/home/marco/projects/spotter/assets/js/app.js', 62),
            ),
            (
                "toolu_017Q5Sr8KaSgowYhbKXBnfV2",
                "WebFetch",
                ('{"url": "https://github.com/xtermjs/xterm.js/issues/1343", "', 229),
            ),
        ],
        {
            "model": OPUS,
            "response": "msg_019BN3FRqb7NU4DgBN5jdsym",
            "usage": {"input": 27666, "output": 173, "cached": 26504},
        },
    ),
    (34, "call", SCROLL, "toolu_01VpPeBD2ziigLLpybShAGoU"),
    (
        35,
        "result",
        SCROLL,
        "toolu_01VpPeBD2ziigLLpybShAGoU",
        [('     1→import "phoenix_html"\n     2→import { Socket } from "', 2984)],
    ),
    (37, "call", SCROLL, "toolu_017Q5Sr8KaSgowYhbKXBnfV2"),
    (
        37,
        "result",
        SCROLL,
        "toolu_017Q5Sr8KaSgowYhbKXBnfV2",
        [("# Scroll Issues in xterm.js - Solutions and Workarounds\n\nBas", 1146)],
    ),
    (38, "user", SCROLL, ["[Request interrupted by user]"], "interruption"),
    (38, "end", SCROLL, "aborted"),
]

WINDOW: list[Row] = [
    (
        0,
        "model",
        None,
        [
            (
                "toolu_016N9xYb4W1SVrXDHzrcReG9",
                "Bash",
                ('{"command": "bd update spotter-dov.3 --status in_progress", ', 97),
            )
        ],
        {
            "model": OPUS,
            "response": "msg_01JMWeqD3uMryaeJe6yQ7VKe",
            "usage": {"input": 156483, "output": 19, "cached": 155132},
        },
    ),
    (5, "call", None, "toolu_016N9xYb4W1SVrXDHzrcReG9"),
    (7, "result", None, "toolu_016N9xYb4W1SVrXDHzrcReG9", ["✓ Updated issue: spotter-dov.3"]),
    (
        8,
        "model",
        None,
        [
            ("This task has frontend work. Let me read the current CSS and", 97),
            (
                "toolu_01V9MTMBQpmxb79mgn5WvYcH",
                "Read",
                ('{"file_path": "/home/USER/projects/spotter-worktrees/spotter', 110),
            ),
            (
                "toolu_01Y2PkkCLdZiRXgWNP2hKScx",
                "Read",
                ('{"file_path": "/home/USER/projects/spotter-worktrees/spotter', 118),
            ),
            (
                "toolu_01LYdTcN91kzPnjTeHwPu9Km",
                "Read",
                ('{"file_path": "/home/USER/projects/spotter-worktrees/spotter', 111),
            ),
        ],
        {
            "model": OPUS,
            "response": "msg_01Nwn8efGiGf7N9byMkYVJkE",
            "usage": {"input": 156599, "output": 272, "cached": 156482},
        },
    ),
    (10, "call", None, "toolu_01V9MTMBQpmxb79mgn5WvYcH"),
    (
        12,
        "result",
        None,
        "toolu_01V9MTMBQpmxb79mgn5WvYcH",
        [('     1→import "phoenix_html"\n     2→import { Socket } from "', 3534)],
    ),
    (14, "call", None, "toolu_01Y2PkkCLdZiRXgWNP2hKScx"),
    (
        16,
        "result",
        None,
        "toolu_01Y2PkkCLdZiRXgWNP2hKScx",
        [("     1→defmodule SpotterWeb.TranscriptComponents do\n     2→ ", 5101)],
    ),
    (18, "call", None, "toolu_01LYdTcN91kzPnjTeHwPu9Km"),
    (
        20,
        "result",
        None,
        "toolu_01LYdTcN91kzPnjTeHwPu9Km",
        [("     1→defmodule SpotterWeb.Live.TranscriptComputers do\n    ", 1568)],
    ),
    (
        21,
        "model",
        None,
        [
            ("Let me also read the rest of app.js (TranscriptSelection hoo", 94),
            (
                "toolu_01RQnrdCKy2MQ4ViqNQtVAkk",
                "Read",
                ('{"file_path": "/home/USER/projects/spotter-worktrees/spotter', 112),
            ),
            (
                "toolu_011tRJjkk5WZSkykxJkpxfwT",
                "Grep",
                ('{"pattern": "transcript", "path": "/home/USER/projects/spott', 152),
            ),
        ],
        {
            "model": OPUS,
            "response": "msg_014bXwYXSZQD9osnnDD1GqgW",
            "usage": {"input": 160591, "output": 3, "cached": 156598},
        },
    ),
    (23, "call", None, "toolu_01RQnrdCKy2MQ4ViqNQtVAkk"),
    (
        25,
        "result",
        None,
        "toolu_01RQnrdCKy2MQ4ViqNQtVAkk",
        [("   280→    if (this._channel) this._channel.leave()\n   281→ ", 3220)],
    ),
    (27, "call", None, "toolu_011tRJjkk5WZSkykxJkpxfwT"),
    (
        29,
        "result",
        None,
        "toolu_011tRJjkk5WZSkykxJkpxfwT",
        [("779-\n780:.session-transcript {\n781-  flex: 1;\n--\n936-/* --- ", 3402)],
    ),
    (
        30,
        "model",
        None,
        [
            ("Now I have the full picture. Let me implement all the pieces", 594),
            (
                "toolu_01T2Tc41xbhf1o4byZigBwB8",
                "Write",
                ('{"file_path": "/home/USER/projects/spotter-worktrees/spotter', 1815),
            ),
        ],
        {
            "model": OPUS,
            "response": "msg_015MPXe1vE1MeA7awGKzXKW2",
            "usage": {"input": 163347, "output": 737, "cached": 160590},
        },
    ),
    (34, "call", None, "toolu_01T2Tc41xbhf1o4byZigBwB8"),
    (
        41,
        "result",
        None,
        "toolu_01T2Tc41xbhf1o4byZigBwB8",
        [("The file /home/USER/projects/spotter-worktrees/spotter-dov/l", 2253)],
    ),
    (
        42,
        "model",
        None,
        [
            ("Now update the shared transcript component with debug sideca", 82),
            (
                "toolu_017apUgL1dk6KNAsRFAaFV2n",
                "Write",
                ('{"file_path": "/home/USER/projects/spotter-worktrees/spotter', 7839),
            ),
        ],
        {
            "model": OPUS,
            "response": "msg_01YDBjrSefBazorPPwZ73AgR",
            "usage": {"input": 164831, "output": 1, "cached": 163346},
        },
    ),
    (46, "call", None, "toolu_017apUgL1dk6KNAsRFAaFV2n"),
    (
        53,
        "result",
        None,
        "toolu_017apUgL1dk6KNAsRFAaFV2n",
        [("The file /home/USER/projects/spotter-worktrees/spotter-dov/l", 9095)],
    ),
    (
        55,
        "compacted",
        None,
        [("This session is being continued from a previous conversation", 15743)],
        {"before": 170251, "reason": "auto"},
    ),
    (
        60,
        "model",
        None,
        [
            "\n\n",
            ("thinking", ("Let me continue working on spotter-dov.3. The two immediate ", 1125)),
            ("Continuing with spotter-dov.3. Let me fix the two errors in ", 128),
            (
                "toolu_01U7yfRx8AD7MahegovUwexY",
                "Edit",
                ('{"replace_all": false, "file_path": "/home/USER/projects/spo', 654),
            ),
        ],
        {
            "model": OPUS,
            "response": "msg_01MCP4jmhxhddhtDDbhCqRq8",
            "usage": {"input": 36081, "output": 639, "cached": 21478},
        },
    ),
    (66, "call", None, "toolu_01U7yfRx8AD7MahegovUwexY"),
    (
        73,
        "result",
        None,
        "toolu_01U7yfRx8AD7MahegovUwexY",
        [("The file /home/USER/projects/spotter-worktrees/spotter-dov/l", 141)],
    ),
    (
        74,
        "model",
        None,
        [
            ("\n\nNow fix the credo nesting issue by extracting the nested c", 78),
            (
                "toolu_01BedgsunqYPre1scY7wyKdr",
                "Read",
                ('{"file_path": "/home/USER/projects/spotter-worktrees/spotter', 146),
            ),
        ],
        {
            "model": OPUS,
            "response": "msg_011exFXhJoKmNdocAzEArkuy",
            "usage": {"input": 39121, "output": 2, "cached": 36078},
        },
    ),
    (76, "call", None, "toolu_01BedgsunqYPre1scY7wyKdr"),
    (
        78,
        "result",
        None,
        "toolu_01BedgsunqYPre1scY7wyKdr",
        [("   135→  defp compute_expand_groups(all_lines, expanded) do\n", 1325)],
    ),
    (
        79,
        "model",
        None,
        [
            (
                "toolu_01QF5ESV5BmwtvkCJSchy3Y2",
                "Edit",
                ('{"replace_all": false, "file_path": "/home/USER/projects/spo', 2274),
            )
        ],
        {
            "model": OPUS,
            "response": "msg_01MH7auhBwRaTT2eR4P94S8J",
            "usage": {"input": 39728, "output": 803, "cached": 39118},
        },
    ),
    (82, "call", None, "toolu_01QF5ESV5BmwtvkCJSchy3Y2"),
    (
        89,
        "result",
        None,
        "toolu_01QF5ESV5BmwtvkCJSchy3Y2",
        [("The file /home/USER/projects/spotter-worktrees/spotter-dov/l", 141)],
    ),
    (
        90,
        "model",
        None,
        [
            ("Good. Now let me verify it compiles and check what still nee", 111),
            (
                "toolu_01JZUCP5CQcPvKw2t54DVbpV",
                "Bash",
                ('{"command": "mix compile --force 2>&1 | tail -20", "timeout"', 68),
            ),
        ],
        {
            "model": OPUS,
            "response": "msg_01YWTMhtAk9J8SAgr7UQjDx4",
            "usage": {"input": 40602, "output": 1, "cached": 39727},
        },
    ),
    (96, "call", None, "toolu_01JZUCP5CQcPvKw2t54DVbpV"),
    (
        100,
        "result",
        None,
        "toolu_01JZUCP5CQcPvKw2t54DVbpV",
        ["Compiling 76 files (.ex)\nGenerated spotter app"],
    ),
    (
        101,
        "model",
        None,
        [
            ("Clean compile. Now let me read the current state of SessionL", 126),
            (
                "toolu_01CGvgJtH8QAaxE2kFAKVUGd",
                "Read",
                ('{"file_path": "/home/USER/projects/spotter-worktrees/spotter', 103),
            ),
            (
                "toolu_01EtLdv46SBTLNQN4HD7BZSW",
                "Read",
                ('{"file_path": "/home/USER/projects/spotter-worktrees/spotter', 104),
            ),
        ],
        {
            "model": OPUS,
            "response": "msg_01AEY5NGLQRS2acRifgrYL3P",
            "usage": {"input": 40742, "output": 187, "cached": 40601},
        },
    ),
    (103, "call", None, "toolu_01CGvgJtH8QAaxE2kFAKVUGd"),
    (
        105,
        "result",
        None,
        "toolu_01CGvgJtH8QAaxE2kFAKVUGd",
        [("     1→defmodule SpotterWeb.SessionLive do\n     2→  use Phoe", 28026)],
    ),
    (107, "call", None, "toolu_01EtLdv46SBTLNQN4HD7BZSW"),
    (
        109,
        "result",
        None,
        "toolu_01EtLdv46SBTLNQN4HD7BZSW",
        [("     1→defmodule SpotterWeb.SubagentLive do\n     2→  use Pho", 10851)],
    ),
    (
        110,
        "model",
        None,
        [("thinking", ("Now I need to update both SessionLive and SubagentLive to pa", 324))],
        {
            "model": OPUS,
            "response": "msg_016V2KM6xTzUAo3xssWHt1Z5",
            "usage": {"input": 54180, "output": 8, "cached": 40741},
        },
    ),
]


def test_an_answer_of_several_calls_is_one_message() -> None:
    """A small session gives its prompts, answers, calls and results, each once and in order."""
    said, lens = sample(FOLDER / "codemie_-tmp-private/4c2ddfdc-b619-4525-8d03-1950fb1b0257.jsonl")
    assert rows(said) == HELLO
    assert lens.facts == SourceFacts(
        id="4c2ddfdc-b619-4525-8d03-1950fb1b0257",
        cwd="/tmp/private",  # noqa: S108 - it is only named
        model=SONNET,
        branch="analytics-v2",
    )
    assert (lens.understood, lens.raw) == (
        {"user": 9, "assistant": 10},
        {"file-history-snapshot": 6},
    )
    assert (lens.told, lens.missed) == (19, 0)
    assert spent(said).own == Totals(7, 251832, 806, 214627, 0, {})
    assert texts(said)[:2] == [
        "create hello.py, md and js",
        "I'll create three simple files: hello.py, hello.md, and hello.js.",
    ]


def test_results_between_the_calls_of_an_answer_come_behind_it() -> None:
    """Interruptions, local commands and results out of order are told of as what they are."""
    said, lens = sample(FOLDER / "spotter_tool_heavy.jsonl")
    assert rows(said) == PHOENIX
    assert lens.facts == SourceFacts(
        id="d6e0bada-1959-4eec-a9d2-0bfade768d8f",
        cwd="/home/marco/projects/spotter",
        model=OPUS,
        branch="master",
    )
    assert lens.understood == {
        "user": 13,
        "assistant": 9,
        "system/local_command": 2,
        "progress/hook_progress": 2,
    }
    assert lens.raw == {
        "file-history-snapshot": 3,
        "progress/hook_progress": 8,
        "queue-operation": 2,
    }
    assert (lens.told, lens.missed) == (24, 0)
    assert spent(said).own == Totals(4, 105981, 212, 88231, 0, {})
    assert [event.time for event in said if event.type == "turn/end"] == [
        1770764283831,
        1770764386748,
    ]


def test_a_compaction_stands_for_what_was_said_before() -> None:
    """A window without its beginning is read, and its summary stands for what it sums up."""
    said, lens = sample(FOLDER / "spotter_compact_window.jsonl")
    assert rows(said) == WINDOW
    assert lens.facts == SourceFacts(
        id="4d5611e5-241a-462a-8d15-5122611a9569",
        cwd="/home/USER/projects/spotter-worktrees/spotter-dov",
        model=OPUS,
        branch="spotter-dov",
        gaps=1,
    )
    assert (sum(lens.understood.values()), sum(lens.raw.values())) == (55, 56)
    assert (lens.told, lens.missed) == (40, 0)
    assert spent(said).own == Totals(11, 1052305, 2672, 1009891, 0, {})
    first, second, *_ = messages(view(said).rows["conversation"], None)
    assert (first["role"], first["source"], first["seq"]) == ("user", "summary", 55)
    assert (second["role"], second["seq"]) == ("assistant", 60)


# --- all samples --------------------------------------------------------------------------------

COUNTS = {
    "as_schema_drift.jsonl": (10, 7, 5),
    "as_small.jsonl": (89, 42, 24),
    "as_subagent/0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f.jsonl": (3, 2, 2),
    "agent-a0ad4f44468bdf20d.jsonl": (4, 3, 3),
    "agent-a0ad4f44468bdf20d.meta.json": (1, 1, 0),
    "av_tool_call_pending.jsonl": (2, 2, 2),
    "av_valid_session.jsonl": (4, 4, 4),
    "ccl_representative_messages.jsonl": (12, 12, 11),
    "4c2ddfdc-b619-4525-8d03-1950fb1b0257.jsonl": (25, 19, 19),
    "agent-36541525.jsonl": (2, 2, 2),
    "agent-50243ee8.jsonl": (2, 2, 2),
    "codemie_9eda1058.jsonl": (40, 21, 19),
    "codemie_history-multi-clear.jsonl": (30, 0, 0),
    "codemie_incremental/turn-1.jsonl": (20, 3, 3),
    "codemie_incremental/turn-2.jsonl": (45, 22, 20),
    "spotter_compact_window.jsonl": (111, 55, 40),
    "spotter_head_8463c716.jsonl": (112, 71, 50),
    "spotter_short.jsonl": (15, 11, 11),
    "spotter_subagent_window.jsonl": (22, 7, 6),
    "spotter_tool_heavy.jsonl": (39, 26, 24),
    "agent-a7be2f0.jsonl": (131, 70, 52),
    "agent-acompact-70d8e7.jsonl": (15, 15, 15),
}


def test_there_are_samples() -> None:
    """Every sample has its counts, and each is another file."""
    assert len(SAMPLES) == len(COUNTS) == 22


@pytest.mark.parametrize("name", COUNTS)
def test_every_record_is_counted_once(name: str) -> None:
    """All records of a sample are read or raw, and of messages and results none is missed."""
    (path,) = (path for path in SAMPLES if path.as_posix().endswith(f"/{name}"))
    said, lens = sample(path)
    records, understood, told = COUNTS[name]
    assert sum(lens.understood.values()) == understood
    assert sum(lens.raw.values()) == records - understood
    assert (lens.told, lens.missed) == (told, 0)
    seqs = [event.seq for event in said]
    assert seqs == sorted(seqs)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_providers_accept_what_is_read(path: Path) -> None:
    """What a sample says makes transcripts of each of its agents that every provider takes."""
    said, _ = sample(path)
    kept = view(said).rows["conversation"]
    for agent in agents(kept):
        found = messages(kept, agent)
        assert found
        for name, validate in VALIDATORS.items():
            assert validate(FORMATS[name](found, load=None)) == []


def test_a_file_that_grew_says_the_same_and_more() -> None:
    """What was read of a shorter file is how a longer one begins."""
    shorter, longer = (
        rows(sample(FOLDER / f"codemie_incremental/turn-{number}.jsonl")[0]) for number in (1, 2)
    )
    assert longer[: len(shorter)] == shorter
    assert (len(shorter), len(longer)) == (3, 25)


def test_files_of_sub_agents_name_their_parents() -> None:
    """A file of a sub-agent has the agent's id, and the session of its parent."""
    _, lens = sample(FOLDER / "spotter_8463c716/subagents/agent-a7be2f0.jsonl")
    assert lens.facts == SourceFacts(
        id="a7be2f0",
        cwd="/home/USER/projects/spotter-worktrees/spotter-fum",
        parent="8463c716-a2ea-4c14-9efa-87158ebd9f20",
        kind="subagent",
        model="claude-haiku-4-5-20251001",
        branch="spotter-fum",
    )
    _, lens = sample(FOLDER / "spotter_fa812bfe/subagents/agent-acompact-70d8e7.jsonl")
    assert (lens.facts.id, lens.facts.agent) == ("acompact-70d8e7", "compaction")
    assert (lens.facts.parent, lens.facts.kind) == (
        "fa812bfe-b295-4cca-9c2f-fdf01028cb46",
        "subagent",
    )


def test_what_sub_agents_said_is_not_said_by_their_parent() -> None:
    """Records of progress that repeat a sub-agent show that its call runs, and no more."""
    said, lens = sample(FOLDER / "spotter_subagent_window.jsonl")
    assert [(event.seq, event.type) for event in said] == [
        (0, "assistant/message"),
        (3, "tool/call"),
        (3, "tool/result"),
        (4, "assistant/message"),
        (6, "tool/call"),
    ]
    assert lens.raw == {"progress/agent_progress": 15}
    assert spent(said).own == Totals(2, 71895, 1061, 70568, 0, {})


def test_a_call_without_a_result_gets_one_for_the_model() -> None:
    """A call that nothing answers may have run: no record tells when a call begins."""
    said, _ = sample(FOLDER / "av_tool_call_pending.jsonl")
    *_, answer, results = messages(view(said).rows["conversation"], None)
    assert answer["content"][1]["id"] == results["content"][0]["id"] == "toolu_orphan"
    assert results["content"][0]["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"


def test_the_lens_is_found_by_its_format() -> None:
    """The registry makes a new lens for the format each time."""
    first, second = lens_of("claude-code"), lens_of("claude-code")
    assert isinstance(first, ClaudeCode)
    assert first is not second
    assert first.name == "claude-code"
