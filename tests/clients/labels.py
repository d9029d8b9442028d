"""What each exchange is, by construction: the stage knows which conversation it belongs to and what its owner typed."""

from __future__ import annotations

import json

from script import newest

from benchmarks.client_truth import Label, is_too_long


def labelled(noted: dict) -> list[Label]:
    """Labels for all exchanges that asked for an answer, in order."""
    labels: list[Label] = []
    session, typed, seen, is_summed = "none", [], None, False
    exchanges = noted["exchanges"]
    for event in noted["events"]:
        if "talk" in event:
            session, typed, seen, is_summed = event["talk"], [], None, False
        elif "typed" in event:
            typed.append(event["typed"])
        elif event.get("goes_on_from"):  # the owner has gone back to another conversation
            session = event["goes_on_from"]
            mine = [each.at for each in labels if each.session == session and each.kind == "main"]
            seen, typed = (mine[-1] if mine else None), []
        elif "exchange" in event:
            held = exchanges[event["exchange"]]
            if not held["is_answered"] or (isinstance(held["body"], dict) and "input_tokens" in held["path"]):
                continue
            label = Label(event["exchange"], session, "side" if held["errand"] else "main", held["errand"])
            in_stream = held["status"] == 200 and not held["replies"]  # too long, said in a stream that had begun
            label.is_refused = in_stream or (held["status"] >= 400 and held["status"] != 499)
            label.is_too_long = in_stream or (label.is_refused and is_too_long(held["refusal"]))
            label.was_cut = any(row["finish"] == "cancelled" for row in held["rows"])
            labels.append(label)
            if label.errand in ("compaction", "summary") and not label.is_refused:
                is_summed = True
            if label.kind == "side":
                continue
            label.words = [text for text in typed if _stands_in(text, held["body"])]
            label.answers = _kept(seen, exchanges, held, labels, is_summed)
            label.has_results = _has_results(held["body"])
            gone = seen is not None and not _holds_reply(held["body"], exchanges[seen])
            label.after_summary = is_summed and gone
            if not label.is_refused:
                seen, typed, is_summed = event["exchange"], [], False
    return labels


def _kept(seen: int | None, exchanges: list, held: dict, labels: list[Label], is_summed: bool) -> int | None:
    """The exchange it goes on from: the last one whose reply the client kept."""
    by_place = {each.at: each for each in labels}
    body = held["body"]
    if is_summed or (isinstance(body, dict) and body.get("previous_response_id")):
        return seen
    while seen is not None and not _holds_reply(body, exchanges[seen]):
        seen = by_place[seen].answers
    return seen


def _holds_reply(body: object, answered: dict) -> bool:
    """Whether a reply stands in this request: one of its calls by its id, or the beginning of its words."""
    said = json.dumps(body, ensure_ascii=False)
    if any(f"call_{turn[-12:]}" in said for turn in answered["turns"]):
        return True
    reply = (answered["replies"] or [""])[0].partition("</think>")[2] or (answered["replies"] or [""])[0]
    words = reply.partition("<tool_call>")[0].strip()
    was_cut = any(row["finish"] == "cancelled" for row in answered["rows"])
    head = words[: 8 if was_cut else 40]
    return bool(head) and _stands_in(head, body, roles=("assistant",))


def _has_results(body: object) -> bool:
    said = json.dumps(newest(body))
    return any(
        mark in said for mark in ('"tool_result"', '"role": "tool"', "function_call_output", "custom_tool_call_output")
    )


def _stands_in(text: str, body: object, *, roles: tuple[str, ...] | None = None) -> bool:
    held = body
    if roles is not None and isinstance(body, dict):
        items = body.get("messages") or body.get("input") or []
        held = [item for item in items if isinstance(item, dict) and item.get("role") in roles]
    return json.dumps(text, ensure_ascii=False)[1:-1] in json.dumps(held, ensure_ascii=False)
