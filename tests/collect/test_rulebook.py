"""Rule files: what may stand in one, what of a request they tell, and an owner's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from conversation import reply, serving, user
from wire import chat, send

from openclaw_rl.collect.clients.blocks import is_notice, is_result, without_blocks
from openclaw_rl.collect.clients.by_rules import RuleClient
from openclaw_rl.collect.clients.rulebook import parsed, shipped
from openclaw_rl.collect.clients.rules import known_clients, readable
from openclaw_rl.collect.stage import CollectSettings
from openclaw_rl.core.message import Message, Role, TextPart, message
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.errors import ConfigError

HEAD = 'name = "mine"\nreleases = "1"\n'
MINE = f"""{HEAD}
[recognised]
user_agent = ["mine/"]
system = {{ prefix = "You are mine." }}

[[session]]
header = "x-mine"
key = "talk"

[[side]]
name = "its riddle"
errand = "errand"
fact = "metadata.riddle"
values = ["yes"]

[[side]]
name = "its summing up"
errand = "compaction"
where = "first"
regex = '\\A#+ Sum'

[[program]]
name = "footer"
begin = "-- mine"

[[program]]
name = "result"
prefix = "RESULT "
is_tool = true

[[wrapper]]
name = "brackets"
begin = "[["
end = "]]"
"""


def test_every_shipped_file_can_be_read_and_says_which_releases_it_is_of() -> None:
    books = shipped()
    assert len(books) >= 11
    assert all(book.releases and book.source for book in books)
    assert len({book.name for book in books}) == len(books)
    assert [client.name for client in known_clients()][-1] == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name = 3", "mine.toml: name is 3"),
        ("name = ", "mine.toml: "),
        (f"{HEAD}colour = 1", "mine.toml: knows no colour"),
        (f'{HEAD}[recognised]\nagent = "x"', "mine.toml: recognised knows no agent"),
        (f'{HEAD}[[side]]\nname = "x"\nerrand = "titel"\nis = "x"', "mine.toml: side.errand is 'titel'"),
        (f'{HEAD}[[side]]\nname = "x"\nerrand = "title"', "mine.toml: a side rule knows a request by nothing"),
        (f'{HEAD}[[side]]\nname = "x"\nerrand = "title"\nwhere = "last"\nis = "x"', "mine.toml: side.where is 'last'"),
        (
            f'{HEAD}[[side]]\nname = "x"\nerrand = "title"\nregex = "("',
            "mine.toml: side.regex is not a regular expression",
        ),
        (f'{HEAD}[[program]]\nname = "x"', "mine.toml: a program rule has a mark or a begin, and not both"),
        (f'{HEAD}[[program]]\nname = "x"\nbegin = "a"\nis = "b"', "mine.toml: a program rule has a mark or a begin"),
        (f"{HEAD}[[session]]", "mine.toml: session names a header or a fact, one of them"),
        (f'{HEAD}[program]\nname = "x"', "mine.toml: program is not a list of tables"),
        (f'{HEAD}[[wrapper]]\nname = "x"\nend = "a"', "mine.toml: wrapper.begin is None"),
    ],
)
def test_a_file_that_cannot_be_used_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parsed(text, "mine.toml")
    assert raised.value.problem.startswith(problem)
    assert raised.value.fix


async def test_an_owners_own_rules_are_read_from_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "mine.toml").write_text(MINE, "utf-8")
    settings = CollectSettings(client_rules=str(folder))
    headers = {"User-Agent": "mine/2", "X-Mine": '{"talk": "t-1"}'}
    async with serving(tmp_path / "home", settings) as served:
        one, placed = await send(served, chat(("user", "[[hi]]\n-- mine, footer"), headers=headers), "hello")
        assert placed.session == "key:t-1"
        assert "session from the x-mine header, its talk (a rule of mine)" in placed.why
        said = (("user", "[[hi]]"), ("assistant", "hello"), ("user", "[[no, shorter]]\n-- mine, footer"))
        _, placed = await send(served, chat(*said, headers=headers), "hi")
        assert placed.parent == one
        assert placed.why.endswith("spoke: the owner, without brackets (a rule of mine)")
        assert await served.next_state(one) == (user("no, shorter"),)
        riddle = chat(("user", "what am I?"), headers=headers, metadata={"riddle": "yes"})
        _, placed = await send(served, riddle, "a server")
        assert placed.why.startswith("side: errand (its riddle, a rule of mine)")
        _, placed = await send(served, chat(("user", "## Sum it up"), headers=headers), "so")
        assert placed.why.startswith("side: compaction (its summing up, a rule of mine)")


def test_a_folder_of_rules_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="there is no such folder"):
        known_clients("/nowhere/at/all")


async def test_with_headers_alone_a_rule_file_reads_no_prompt(tmp_path: Path) -> None:
    settings = CollectSettings(infer_from_prompts=False)
    async with serving(tmp_path, settings) as served:
        title = chat(("user", "### Task:\nGenerate a concise, 3-5 word title"), headers={"X-OpenWebUI-Chat-Id": "c"})
        _, placed = await send(served, title, "so")
        assert (placed.kind, placed.session) == (TurnKind.MAIN, "key:c")


def test_what_a_program_put_into_a_message_is_not_read_as_its_owners() -> None:
    mine = RuleClient(parsed(MINE, "mine.toml"))
    sent = (user("[[hi]]\n-- mine"), reply("so"), user("RESULT 3"), reply("three"), user("-- mine"))
    assert [item.text for item in mine.spoken(sent)] == ["hi", "so", "RESULT 3", "three"]
    assert [(item.role, item.text) for item in mine.heard(sent) if item.role is not Role.ASSISTANT] == [
        (Role.USER, "hi"),
        (Role.TOOL, "RESULT 3"),
    ]
    read = readable((message("system", "You are mine."), *sent), (mine,))
    assert [item.role for item in read] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]


@pytest.mark.parametrize(
    ("text", "left", "names"),
    [
        ("<system-reminder>\nx\n</system-reminder>\nshorter", "shorter", ("<system-reminder>",)),
        ("shorter\n\n<env_details a='1'>\nx\n</env_details>", "shorter", ("<env_details>",)),
        ("about this <user_query>shorter</user_query>", "shorter", ("around <user_query>",)),
        ("<task>\nshorter\n</task>", "shorter", ("around <task>",)),
        ("I mean <task>this</task>", "I mean <task>this</task>", ()),
        ("use <my-button>ok</my-button> there", "use <my-button>ok</my-button> there", ()),
        ("<b>shorter</b>", "<b>shorter</b>", ()),
        ("a < b and c > d", "a < b and c > d", ()),
        ("<open-tag>\nnever closed", "<open-tag>\nnever closed", ()),
    ],
)
def test_what_no_person_types_is_known_by_its_shape(text: str, left: str, names: tuple[str, ...]) -> None:
    assert without_blocks(text) == (left, names)


def test_results_and_notices_are_known_by_how_they_begin() -> None:
    assert is_result("Observation:\n42") and is_result("<returncode>3</returncode>\n") and is_result("Tool output: x")
    assert not is_result("Observation deck, please") and not is_result("The result: 3")
    assert is_notice("[SYSTEM NOTIFICATION - NOT USER INPUT]\nx")
    assert not is_notice("[IMPORTANT]\nx") and not is_notice("[Some Heading Here Now]\nx")


def test_a_message_of_several_parts_is_read_part_by_part() -> None:
    claude = next(client for client in known_clients() if client.name == "claude-code")
    summary = "This session is being continued from a previous conversation that ran out of context.\nSo."
    sent = Message(Role.USER, (TextPart(summary), TextPart("and now?")))
    assert [item.text for item in claude.heard([sent])] == ["and now?"]
    assert claude.is_summed([sent])
    assert claude.noted([sent]) == ("summary after a compaction",)
