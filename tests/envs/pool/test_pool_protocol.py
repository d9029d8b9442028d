"""The pool over HTTP, as another client would speak it: tokens, operation ids, jobs, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from pool_servers import KEY, Server


@dataclass(slots=True)
class Http:
    """A lease, spoken to by hand."""

    session: aiohttp.ClientSession
    url: str
    lease: str = ""
    token: str = ""

    async def send(
        self, method: str, path: str, body: object = None, *, operation: str = "", token: str | None = None
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {KEY}", "Lease-Token": self.token if token is None else token}
        headers |= {"Operation-Id": operation} if operation else {}
        data = body if isinstance(body, bytes) else json.dumps(body)
        async with self.session.request(method, self.url + path, headers=headers, data=data) as answer:
            return answer.status, await answer.json()

    async def call(self, name: str, body: object, *, operation: str, wait_s: float = 20.0) -> tuple[int, Any]:
        return await self.send("POST", f"/v1/leases/{self.lease}/{name}?wait_s={wait_s}", body, operation=operation)


@asynccontextmanager
async def leased(server: Server, name: str, **body: object) -> AsyncIterator[Http]:
    """A lease, taken and given back."""
    async with aiohttp.ClientSession() as session:
        http = Http(session, server.url)
        status, said = await http.send("POST", "/v1/leases", {"kind": "box", **body}, operation=f"{name}-lease")
        assert status == 200, said
        http.lease, http.token = said["lease"], str(said["token"])
        yield http
        await http.send("DELETE", f"/v1/leases/{http.lease}")


def code_of(said: Any) -> tuple[str, str | None]:
    return said["error"]["code"], said["error"]["failure"]


async def test_an_operation_that_is_sent_again_is_done_once_and_answered_alike(shared: Server) -> None:
    async with leased(shared, "twice") as http:
        command = {"command": "echo x >> f; wc -l < f"}
        first = await http.call("exec", command, operation="twice-1")
        again = await http.call("exec", command, operation="twice-1")
        assert first == again
        status, said = await http.call("exec", {"command": "cat f"}, operation="twice-2")
        assert (status, said["stdout"]["head"]) == (200, "eAo=")  # "x\n", once
        other = await http.call("exec", {"command": "true"}, operation="twice-1")
        assert (other[0], code_of(other[1])[0]) == (409, "operation_mismatch")


async def test_many_who_ask_for_the_same_at_once_get_the_one_result(shared: Server) -> None:
    async with leased(shared, "many") as http:
        command = {"command": "echo x >> f; sleep 0.3; wc -l < f"}
        answers = await asyncio.gather(*[http.call("exec", command, operation="many-1") for _ in range(8)])
        assert {json.dumps(answer) for answer in answers} == {json.dumps(answers[0])}
        assert answers[0][1]["stdout"]["head"] == "MQo="  # "1\n"


async def test_a_lease_that_is_asked_for_again_is_the_same_one(shared: Server) -> None:
    async with leased(shared, "same") as http:
        status, said = await http.send("POST", "/v1/leases", {"kind": "box"}, operation="same-lease")
        assert (status, said["lease"], str(said["token"])) == (200, http.lease, http.token)


async def test_a_wrong_token_is_refused_and_changes_nothing(shared: Server) -> None:
    async with leased(shared, "token") as http:
        path = f"/v1/leases/{http.lease}"
        for token in ("", "1", str(int(http.token) + 1)):
            status, said = await http.send("POST", f"{path}/write", {"path": "f"}, operation=f"t{token}", token=token)
            assert (status, code_of(said)[0]) == (409, "wrong_token")
            status, said = await http.send("DELETE", path, token=token)
            assert (status, code_of(said)[0]) == (409, "wrong_token")
        assert (await http.send("POST", f"{path}/read", {"path": "f"}))[0] == 404


async def test_tokens_grow(shared: Server) -> None:
    async with leased(shared, "first") as first, leased(shared, "second") as second:
        assert int(second.token) > int(first.token)


async def test_a_long_command_is_a_job_that_is_polled_and_cancelled(shared: Server) -> None:
    async with leased(shared, "job") as http:
        body = {"command": "echo begun >> f; sleep 300.0625", "timeout_s": 400}
        status, said = await http.call("exec", body, operation="job-1", wait_s=0.3)
        assert (status, said) == (202, {"operation": "job-1", "state": "running"})
        assert (await http.send("GET", "/v1/operations/job-1?wait_s=0"))[0] == 202
        status, said = await http.send("POST", "/v1/operations/job-1/cancel")
        assert (status, code_of(said)) == (409, ("cancelled", None))
        assert (await http.send("GET", "/v1/operations/job-1"))[0] == 409
        status, said = await http.call(
            "exec", {"command": "pgrep -x sleep -a | grep -cF ' 300.0625'"}, operation="job-2"
        )
        assert said["stdout"]["head"] == "MAo="  # "0\n": nothing of it runs, and the box is as good as before


async def test_a_step_that_was_cut_off_ends_its_lease(shared: Server) -> None:
    async with leased(shared, "cut", kind="count", task="t1") as http:
        await http.call("reset", {}, operation="cut-1")
        body = {"actions": [{"tool": "wait", "arguments": {"note": "600"}}], "deadline_s": 0.3}
        status, said = await http.call("step", body, operation="cut-2")
        assert (status, code_of(said)) == (504, ("deadline_exceeded", "infrastructure"))
        status, said = await http.call("evaluate", {}, operation="cut-3")
        assert (status, code_of(said)) == (410, ("lease_ended", "infrastructure"))


async def test_a_lease_that_was_closed_gives_old_results_and_takes_nothing_new(shared: Server) -> None:
    async with leased(shared, "closed") as http:
        done = await http.call("exec", {"command": "echo 1"}, operation="closed-1")
        path = f"/v1/leases/{http.lease}"
        assert (await http.send("DELETE", path))[0] == 200
        assert (await http.send("DELETE", path))[0] == 200  # again: it is closed
        assert await http.call("exec", {"command": "echo 1"}, operation="closed-1") == done
        status, said = await http.call("exec", {"command": "echo 1"}, operation="closed-2")
        assert (status, code_of(said)) == (410, ("lease_closed", None))


async def test_the_events_of_a_lease_tell_all_that_was_done_on_it(shared: Server) -> None:
    async with leased(shared, "events", kind="count", task="t1", run="who") as http:
        await http.call("reset", {"seed": 4}, operation="events-1")
        await http.call("step", {"actions": [{"tool": "act", "arguments": {"note": "n"}}]}, operation="events-2")
        headers = {"Authorization": f"Bearer {KEY}"}
        async with http.session.get(f"{http.url}/v1/leases/{http.lease}/events", headers=headers) as answer:
            lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert [lines[0][name] for name in ("run", "kind", "task", "reason")] == ["who", "count", "t1", None]
    assert [line["call"] for line in lines[1:]] == ["reset", "step"]
    assert lines[1]["request"] == {"seed": 4}
    assert lines[2]["answer"]["reward"] == 0.5
    assert all(line["ended_s"] >= line["began_s"] for line in lines[1:])


@pytest.mark.parametrize(
    ("method", "path", "body", "operation", "expected"),
    [
        ("POST", "/v1/leases", b"{", "b1", (400, "invalid_body")),
        ("POST", "/v1/leases", {"kind": 5}, "b2", (400, "invalid_body")),
        ("POST", "/v1/leases", {"kind": "box"}, "", (400, "no_operation_id")),
        ("POST", "/v1/leases", {"kind": "box"}, "x" * 300, (400, "no_operation_id")),
        ("POST", "/v1/leases", {"kind": "nothing"}, "b3", (400, "unknown_kind")),
        ("POST", "/v1/leases", {"kind": "count"}, "b4", (400, "no_task")),
        ("POST", "/v1/leases", {"kind": "count", "task": "t9"}, "b5", (404, "unknown_task")),
        ("POST", "/v1/leases", {"kind": "count", "task": "torn"}, "b6", (422, "broken_task")),
        ("POST", "/v1/leases", {"kind": "box", "snapshot": "s"}, "b7", (404, "unknown_snapshot")),
        ("POST", "/v1/leases/none/exec", {"command": "true"}, "b8", (404, "unknown_lease")),
        ("POST", "/v1/leases/none/fly", {}, "b9", (404, "invalid_request")),
        ("GET", "/v1/operations/none", None, "", (404, "unknown_operation")),
        ("GET", "/nothing", None, "", (404, "http")),
        ("PUT", "/v1/leases", None, "", (405, "http")),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(
    *, shared: Server, method: str, path: str, body: object, operation: str, expected: tuple[int, str]
) -> None:
    async with aiohttp.ClientSession() as session:
        status, said = await Http(session, shared.url).send(method, path, body, operation=operation)
    assert (status, said["error"]["code"]) == expected
    assert said["error"]["message"]


async def test_only_health_is_told_without_the_key(shared: Server) -> None:
    async with aiohttp.ClientSession() as session:
        for path, status in (("/health", 200), ("/metrics", 401), ("/v1/pool", 401), ("/nothing", 401)):
            async with session.get(shared.url + path) as answer:
                assert answer.status == status


async def test_metrics_are_prometheuss_text(shared: Server) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    async with leased(shared, "metrics") as http:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with http.session.get(f"{http.url}/metrics", headers=headers) as answer:
            text = await answer.text()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert found["openclaw_rl_pool_capacity"].samples[0].value == 4
    assert found["openclaw_rl_pool_taken"].samples[0].value >= 1
    assert any(
        sample.labels == {"call": "lease", "status": "200"} for sample in found["openclaw_rl_pool_calls"].samples
    )
