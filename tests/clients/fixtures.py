"""Exchanges as fixtures: without keys and this machine's names, long texts of the client's makers shortened."""

from __future__ import annotations

import gzip
import json
import platform
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from benchmarks.client_truth import Label

LEFT_OUT = ("host", "content-length", "connection", "accept-encoding", "transfer-encoding", "authorization")
LEFT_OUT += ("x-api-key", "api-key", "cookie")
LONGEST_SYSTEM, LONGEST_ABOUT, LONGEST_TEXT = 1500, 160, 9000
SHARED_FROM = 200  # letters; what is longer and comes again is kept once
SHORTENED = "\n[... {} letters left out ...]\n"


def write(path: Path, head: dict, noted: dict, labels: list[Label], places: dict[str, str]) -> int:
    """Writes the fixture file; gives how many exchanges it holds."""
    held = []
    for label in labels:
        exchange = noted["exchanges"][label.at]
        headers = {name: value for name, value in exchange["headers"].items() if name not in LEFT_OUT}
        held.append(
            {
                **asdict(label),
                "path": exchange["path"],
                "headers": headers,
                "body": shortened(exchange["body"]),
                "replies": exchange["replies"],
                "status": exchange["status"],
                "refusal": exchange["refusal"],
                "turns": exchange["turns"],
                "tokens": [row["tokens"] for row in exchange["rows"]],
            }
        )
    neutral = json.loads(_neutral(json.dumps(held, ensure_ascii=False), places))
    shared: dict[str, object] = {}
    counts: Counter[str] = Counter()
    for each in neutral:
        _count(each["body"], counts)
    names: dict[str, str] = {}
    for each in neutral:
        each["body"] = _referred(each["body"], counts, names, shared)
    lines = [{**head, "shared": shared}, *neutral]
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return len(neutral)


def shortened(body: object) -> object:
    """The body with its makers' long texts cut in the middle; what was typed, replied and fetched stays."""
    if not isinstance(body, dict):
        return body
    made = {}
    for name, value in body.items():
        if name in ("system", "instructions"):
            made[name] = _cut_texts(value, LONGEST_SYSTEM)
        elif name in ("tools", "functions"):
            made[name] = _about_cut(value)
        elif name in ("messages", "input") and isinstance(value, list):
            made[name] = [_message(item) for item in value]
        else:
            made[name] = _cut_texts(value, LONGEST_TEXT)
    return made


def _message(item: object) -> object:
    if isinstance(item, dict) and item.get("role") in ("system", "developer"):
        return _cut_texts(item, LONGEST_SYSTEM)
    if isinstance(item, dict) and item.get("type") == "additional_tools":
        return _about_cut(item)
    return _cut_texts(item, LONGEST_TEXT)


def _cut_texts(value: object, most: int) -> object:
    if isinstance(value, str):
        if len(value) <= most or value.startswith("data:"):
            return value
        head, tail = most * 2 // 3, most // 3
        return value[:head] + SHORTENED.format(len(value) - head - tail) + value[-tail:]
    if isinstance(value, list):
        return [_cut_texts(item, most) for item in value]
    if isinstance(value, dict):
        return {name: _cut_texts(item, most) for name, item in value.items()}
    return value


def _about_cut(value: object) -> object:
    """Tools with their descriptions shortened."""
    if isinstance(value, list):
        return [_about_cut(item) for item in value]
    if isinstance(value, dict):
        made = {name: _about_cut(item) for name, item in value.items()}
        for name in ("description", "definition"):
            if isinstance(made.get(name), str):
                made[name] = str(made[name])[:LONGEST_ABOUT]
        return made
    return value


def _neutral(text: str, places: dict[str, str]) -> str:
    """Without this machine's paths and names."""
    for place, name in sorted(places.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(place, name)
        text = text.replace(place.replace("/", "-"), name.replace("/", "-"))  # how some name a project's folder
    node = platform.node()
    if len(node) > 3:
        text = text.replace(node, "workstation")
    text = text.replace(platform.release(), "6.1.0")
    return re.sub(r"127\.0\.0\.1:\d{4,5}", "127.0.0.1:30000", text)


def _key(value: object) -> str | None:
    if not isinstance(value, str | dict | list):
        return None
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) >= SHARED_FROM else None


def _count(value: object, counts: Counter[str]) -> None:
    key = _key(value)
    if key is None:
        return
    counts[key] += 1
    if counts[key] == 1:
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            _count(item, counts)


def _referred(value: object, counts: Counter[str], names: dict[str, str], shared: dict[str, object]) -> object:
    key = _key(value)
    if key is None:
        return value
    if counts[key] > 1:
        if key not in names:
            names[key] = f"s{len(names)}"
            shared[names[key]] = _parts(value, counts, names, shared)
        return {"$": names[key]}
    return _parts(value, counts, names, shared)


def _parts(value: object, counts: Counter[str], names: dict[str, str], shared: dict[str, object]) -> object:
    if isinstance(value, dict):
        return {name: _referred(item, counts, names, shared) for name, item in value.items()}
    return [_referred(item, counts, names, shared) for item in value] if isinstance(value, list) else value
