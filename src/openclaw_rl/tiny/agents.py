"""Made-up system texts of agents: rules, skills, workspace files and tool schemas, in the words such texts use."""

from __future__ import annotations

import json
from random import Random

from openclaw_rl.core.message import Json, Tool

NOUNS = (
    "skill", "tool", "session", "workspace", "agent", "subagent", "gateway", "plugin", "channel", "conversation",
    "memory", "model", "repository", "project", "dashboard", "widget", "automation", "reminder", "heartbeat",
    "transcript", "approval", "secret", "credential", "identity", "avatar", "emoji", "persona", "schema", "query",
    "image", "voice", "message", "browser", "canvas", "node", "snapshot", "background", "process", "command", "cursor",
    "profile", "provider", "decision", "preference", "directive", "fact", "note", "reply", "question", "answer",
    "update", "draft", "proposal", "template", "snippet", "artifact", "metadata", "attachment", "label", "scope",
    "limit", "timeout", "milliseconds", "boundary", "safety", "guidance", "convention", "priority", "acknowledgment",
    "observation", "recommendation", "onboarding", "placeholder", "relationship", "personality", "tone", "humor",
    "reaction", "security", "service", "install", "setup", "config", "status", "progress", "blocker", "edit", "patch",
    "batch", "panel", "route", "capability", "claim", "ownership", "repository", "publisher", "choice", "URL", "ID",
    "API", "CLI", "UI", "TTY", "JSON", "Markdown", "URI", "user", "human", "English", "theme", "vibe",
)  # fmt: skip
VERBS = (
    "read", "write", "search", "fetch", "inspect", "verify", "diagnose", "troubleshoot", "configure", "install",
    "organize", "visualize", "describe", "approve", "acknowledge", "preserve", "merge", "transfer", "attempt",
    "explain", "suggest", "recommend", "publish", "schedule", "spawn", "poll", "yield", "restart", "paste", "learn",
    "prefer", "keep", "never", "say", "ask", "begin", "treat", "choose", "save", "send", "stay", "avoid", "continue",
    "wait", "run", "invent", "claim", "expose", "create", "update", "delete", "list", "remember", "summarize", "offer",
    "check", "stop", "use", "deliver", "route",
)  # fmt: skip
ADJECTIVES = (
    "durable", "stable", "private", "relevant", "visible", "requested", "configured", "authorized", "autonomous",
    "urgent", "brief", "contradictory", "superseded", "isolated", "internal", "external", "dynamic", "silent",
    "unavailable", "deferred", "hosted", "curated", "quiet", "distinct", "preferred", "recommended", "empty",
    "half-finished", "bounded", "literal", "optional", "required", "genuine", "familiar", "daily", "unfinished",
    "opaque", "overlapping", "project-wide", "read-only", "non-interactive", "nearby", "human",
)  # fmt: skip
FILES = ("AGENTS", "SOUL", "USER", "IDENTITY", "MEMORY", "BOOTSTRAP", "HEARTBEAT", "TOOLS", "SKILL")
HEADINGS = (
    "Tooling", "Safety", "Skills", "Workspace", "Memory", "Messaging", "Automations", "Project Context", "Runtime",
    "Reply Directives", "Control UI", "Dynamic Context", "Heartbeats", "Silent replies", "Voice", "Related",
    "OpenClaw CLI",
)  # fmt: skip
_RULES = (
    "Before you {verb} a {noun}, {verb2} the {noun2}.", "Never {verb} the user's {adjective} {noun}s.",
    "If the {noun} is {adjective}, {verb} it and say so briefly.",
    "Keep {noun}s {adjective}; {verb} only what was asked.", "Use `{noun}_{verb}` to {verb2} {adjective} {noun2}s.",
    "When in doubt, {verb} the {noun} first.", "Do not {verb} {noun}s in the {adjective} workspace.",
    "Prefer {adjective} {noun}s over {noun2}s.", "After each {noun}, {verb} the {noun2} and stay quiet.",
    "Your {noun} lives in the {adjective} {noun2}.",
)  # fmt: skip


def system_text(rng: Random, *, chars: int) -> str:
    """An agent's system text of at least `chars` characters: whole parts are added until it is long enough."""
    parts = ["You are a personal assistant running inside OpenClaw."]
    while sum(map(len, parts)) < chars:
        parts.append(rng.choice((_section, _section, _skills, _file))(rng))
    return "\n\n".join(parts)


def tool_schemas(rng: Random, *, count: int) -> str:
    """The schemas of `count` tools, one JSON text per line as chat templates write them."""
    return "\n".join(json.dumps(_schema(rng), ensure_ascii=False) for _ in range(count))


def tools(rng: Random, *, count: int) -> list[Tool]:
    """`count` further tools that an agent's client may offer in addition to those of the task."""
    made = (_schema(rng) for _ in range(count))
    return [Tool(str(each["name"]), str(each["description"]), _object(each["parameters"])) for each in made]


def _object(found: object) -> dict[str, Json]:
    assert isinstance(found, dict)
    return found


def _rule(rng: Random) -> str:
    noun, noun2 = rng.choice(NOUNS), rng.choice(NOUNS)
    verb, verb2 = rng.choice(VERBS), rng.choice(VERBS)
    text = rng.choice(_RULES).format(noun=noun, noun2=noun2, verb=verb, verb2=verb2, adjective=rng.choice(ADJECTIVES))
    return text if rng.random() < 0.7 else f"{verb2.capitalize()}: {text}"


def _section(rng: Random) -> str:
    heading = f"{'#' * rng.choice((2, 2, 3))} {rng.choice((*HEADINGS, rng.choice(NOUNS).capitalize()))}"
    kind = rng.random()
    if kind < 0.5:
        return heading + "\n\n" + "\n".join(f"- {_rule(rng)}" for _ in range(rng.randint(2, 6)))
    if kind < 0.7:
        rules = (f"- **{rng.choice(NOUNS).capitalize()}:** {_rule(rng)}" for _ in range(rng.randint(2, 4)))
        return heading + "\n\n" + "\n".join(rules)
    if kind < 0.8:
        return f"{heading}\n<!-- {rng.choice(NOUNS).upper()} -->\n```\n{rng.choice(VERBS)} --{rng.choice(NOUNS)}\n```"
    return heading + "\n" + " ".join(_rule(rng) for _ in range(rng.randint(2, 5)))


def _skills(rng: Random) -> str:
    listed = []
    for _ in range(rng.randint(2, 6)):
        name = f"{rng.choice(NOUNS)}-{rng.choice(NOUNS)}" if rng.random() < 0.6 else rng.choice(NOUNS)
        about = f"{rng.choice(VERBS).capitalize()} {rng.choice(NOUNS)}s, {rng.choice(NOUNS)}s, and {rng.choice(NOUNS)}s"
        listed.append(
            f"  <skill>\n    <name>{name}</name>\n    <description>{about} with {rng.choice(ADJECTIVES)} one-liners."
            f"</description>\n    <location>{_root(rng)}skills/{name}/SKILL.md</location>\n  </skill>"
        )
    return "<available_skills>\n" + "\n".join(listed) + "\n</available_skills>"


def _root(rng: Random) -> str:
    return rng.choice(("<OPENCLAW_DIR>/", "<WORKSPACE>/", "~/.openclaw/", "/home/user/.openclaw/workspace/"))


def _file(rng: Random) -> str:
    name = rng.choice(FILES)
    lines = "\n".join(f"- **{rng.choice(NOUNS).capitalize()}:**\n  _({_rule(rng)}?)_" for _ in range(2))
    link = f"[{name}]({_root(rng)}{name}.md)"
    return f"## {_root(rng)}{name}.md\n\n# {name}.md - {_rule(rng)}\n\n{_rule(rng)} See {link}.\n\n{lines}"


def _schema(rng: Random) -> dict[str, object]:
    properties: dict[str, object] = {}
    for _ in range(rng.randint(1, 4)):
        noun = rng.choice(NOUNS)
        name = rng.choice(
            (noun, f"{noun}Id", f"{noun}_{rng.choice(NOUNS)}", "timeoutSeconds", "sessionKey", "maxLength")
        )
        kind = rng.choice(("string", "string", "number", "integer", "boolean", "array"))
        said: dict[str, object] = {"description": _rule(rng), "type": kind}
        if kind == "array":
            said["items"] = {"type": "string"}
        elif kind != "string":
            said |= {"minimum": 1, "default": 10}
        elif rng.random() < 0.3:
            said["enum"] = rng.sample(NOUNS, 3)
        properties[name] = said
    about = " ".join(_rule(rng) for _ in range(rng.randint(1, 3)))
    shape = {
        "type": "object",
        "properties": properties,
        "required": sorted(properties)[:1],
        "additionalProperties": False,
    }
    return {"name": f"{rng.choice(NOUNS)}_{rng.choice(VERBS)}", "description": about, "parameters": shape}
