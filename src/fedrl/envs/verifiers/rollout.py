"""A rollout of a verifiers environment, turned inside out: it asks, and the caller answers.

An environment of verifiers runs its own loop and calls a client for every answer of a model. Here
it does just that (its turns, tools, stops and rubric are its own code, untouched), in an event loop
of its own, and the client is a line on which its question waits for our policy:

    question = await rollout.begin()                a `Question`: the conversation and the tools
    outcome  = await rollout.answer("…")            the next one, or an `Outcome` with the reward
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import verifiers as vf
from verifiers.types import Response, ResponseMessage, ToolCall

from fedrl.core.types import Json, Shareable, UserError
from fedrl.envs.tools.calls import parse_calls

MODEL = "policy"


class EnvironmentFailed(UserError):
    """The environment raised, hangs, or gives a reward that is none; nothing of it is quoted."""

    def __init__(self, why: str) -> None:
        super().__init__(Shareable(f"the verifiers environment {why}"))


class Question(NamedTuple):
    messages: list[Json]
    tools: list[Json]


class Outcome(NamedTuple):
    reward: float
    metrics: Mapping[str, float]
    last: list[Json]  # what came after the last answer
    scored: bool


class _Line(vf.Client):
    """verifiers' client of one rollout: hands questions out and waits for their answers."""

    def __init__(self) -> None:
        super().__init__(None)
        self.questions: asyncio.Queue[Question] = asyncio.Queue()
        self.answers: asyncio.Queue[str | None] = asyncio.Queue()

    async def get_response(
        self,
        prompt: Sequence[Any],
        model: str,
        sampling_args: Json,
        tools: Sequence[Any] | None = None,
        **more: object,
    ) -> Response:
        await self.questions.put(Question([_message(m) for m in prompt], _schemas(tools)))
        text = await self.answers.get()
        if text is None:  # as if the model's window were full: the environment ends and scores
            raise vf.OverlongPromptError
        parsed = parse_calls(text) if tools else None
        calls = [
            ToolCall(id=uuid4().hex[:9], name=call.name, arguments=json.dumps(call.arguments))
            for call in (parsed.calls if parsed else ())
        ]
        said = ResponseMessage(
            role="assistant",
            content=parsed.content if parsed else text,
            tool_calls=calls or None,
            finish_reason="tool_calls" if calls else "stop",
            is_truncated=False,
        )
        return Response(id=uuid4().hex, created=int(time.time()), model=model, message=said)

    def setup_client(self, config: object) -> None:
        """There is nobody to connect to."""

    async def to_native_tool(self, tool: Any) -> Any:
        return tool

    async def to_native_prompt(self, messages: Any) -> Any:
        return messages, {}

    async def get_native_response(self, *given: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def raise_from_native_response(self, response: Any) -> None:
        """Ours are well formed."""

    async def from_native_response(self, response: Any) -> Any:
        return response

    async def close(self) -> None:
        """Nothing is open."""


class Rollout:
    """One row of the dataset, played once."""

    def __init__(self, environment: vf.Environment, row: Json, patience: float) -> None:
        self.environment, self.row, self.patience = environment, row, patience
        self.asked = 0  # messages of the last question
        self.line: _Line | None = None
        self.work: asyncio.Task[Any] | None = None

    async def begin(self) -> Question | Outcome:
        self.line = _Line()
        run: Coroutine[Any, Any, Any] = self.environment.run_rollout(
            self.row, self.line, MODEL, {}, state_columns=[]
        )
        self.work = asyncio.create_task(run)
        return await self._next()

    async def answer(self, text: str | None) -> Question | Outcome:
        """What the environment makes of the policy's text; None asks it to end and to score."""
        assert self.line is not None
        await self.line.answers.put(text)
        return await self._next()

    def drop(self) -> None:
        """An episode that nobody plays on."""
        if self.work is not None and not self.work.done():
            self.work.get_loop().call_soon_threadsafe(self.work.cancel)

    async def _next(self) -> Question | Outcome:
        assert self.line is not None
        assert self.work is not None
        asks = asyncio.create_task(self.line.questions.get())
        done, _ = await asyncio.wait(
            (asks, self.work), timeout=self.patience, return_when=asyncio.FIRST_COMPLETED
        )
        if asks in done:
            question = asks.result()
            self.asked = len(question.messages)
            return question
        asks.cancel()
        if self.work not in done:
            self.work.cancel()
            raise EnvironmentFailed(f"did not answer within {self.patience:g} s")
        try:
            output = self.work.result()
        except Exception as error:  # code of others may fail in any way
            raise EnvironmentFailed(f"raised {type(error).__name__}") from error
        return self._outcome(output)

    def _outcome(self, output: Mapping[str, Any]) -> Outcome:
        conversation = [*(output["prompt"] or ()), *(output["completion"] or ())]
        last = [_message(m) for m in conversation[self.asked + 1 :]]
        reward, failed = output["reward"], output.get("error") is not None
        if not isinstance(reward, int | float) or abs(reward) > 1e9 or reward != reward:
            raise EnvironmentFailed("gave a reward that is no number")
        metrics = output.get("metrics") or {}
        return Outcome(float(reward), metrics, last, not failed)


def _message(message: Any) -> Json:
    """A message of verifiers, typed or not, as chat templates read them."""
    given: Json = message if isinstance(message, dict) else message.model_dump(exclude_none=True)
    told: Json = {"role": given["role"], "content": _text(given.get("content"))}
    if given.get("tool_calls"):
        told["tool_calls"] = [_call(call) for call in given["tool_calls"]]
    if given["role"] == "tool":
        told["tool_call_id"] = str(given.get("tool_call_id", ""))
    return told


def _call(call: Json) -> Json:
    function = call.get("function", call)
    arguments = function["arguments"]
    try:
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        read = arguments
    return {"type": "function", "function": {"name": function["name"], "arguments": read}}


def _text(content: Any) -> str:
    """Of parts, those that are text: our models read nothing else."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part["text"]) for part in content if part.get("type") == "text")


def _schemas(tools: Sequence[Any] | None) -> list[Json]:
    keys = ("name", "description", "parameters")
    return [
        {"type": "function", "function": {key: getattr(tool, key) for key in keys}}
        for tool in tools or ()
    ]
