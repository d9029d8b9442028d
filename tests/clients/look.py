"""Prints a fixture as a person would check it: `look.py FIXTURE`."""

from __future__ import annotations

import gzip
import json
import sys

from script import newest


def resolved(value: object, shared: dict) -> object:
    """The value with what is kept once in its places."""
    if isinstance(value, dict):
        if set(value) == {"$"}:
            return resolved(shared[value["$"]], shared)
        return {name: resolved(item, shared) for name, item in value.items()}
    return [resolved(item, shared) for item in value] if isinstance(value, list) else value


def main() -> None:
    """One line of facts for each exchange, and the newest messages."""
    with gzip.open(sys.argv[1], "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    width = int(sys.argv[2]) if len(sys.argv) > 2 else 160
    for each in lines[1:]:
        body = resolved(each["body"], lines[0]["shared"])
        said = json.dumps(newest(body), ensure_ascii=False)
        tools = len(body.get("tools") or []) if isinstance(body, dict) else "?"
        facts = f"{each['session']} {each['errand'] or 'main'} <- {each['answers']} {each['status']}"
        facts += "".join(f" {name}" for name in ("after_summary", "was_cut", "has_results", "is_refused") if each[name])
        print(f"{each['at']:3} {facts} tools={tools} words={each['words']}")
        print(f"      {said[:width]} ... {said[-width:] if len(said) > width else ''}")
        print(f"      -> {[reply[:70] for reply in each['replies']]}")


if __name__ == "__main__":
    main()
