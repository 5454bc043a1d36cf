"""agno: a subclass of its `Model`; telemetry is off."""

from dataclasses import dataclass

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse

from . import work


@dataclass
class Scripted(Model):
    id: str = "scripted"
    turns: int = 1

    def answer(self, messages):
        done = (len(messages) - (2 if messages[0].role == "system" else 1)) // 2
        if done < self.turns:
            call = {"id": f"c{done}", "type": "function", "function": {"name": work.NAME, "arguments": work.TEXT}}
            return ModelResponse(role="assistant", tool_calls=[call])
        return ModelResponse(role="assistant", content=work.DONE)

    def invoke(self, messages, **kwargs):
        return self.answer(messages)

    async def ainvoke(self, messages, **kwargs):
        return self.answer(messages)

    def invoke_stream(self, *args, **kwargs):
        raise NotImplementedError

    def ainvoke_stream(self, *args, **kwargs):
        raise NotImplementedError

    def _parse_provider_response(self, response, **kwargs):
        return response

    def _parse_provider_response_delta(self, response):
        return response


def conversation(turns, *, asynchronous):
    agent = Agent(model=Scripted(turns=turns), tools=[work.find_async if asynchronous else work.find], telemetry=False)

    def checked(result):
        assert result.content == work.DONE, result
        assert len(result.tools or []) == turns, result.tools
        return result

    async def arun():
        return checked(await agent.arun(work.QUESTION))

    def run():
        return checked(agent.run(work.QUESTION))

    return arun if asynchronous else run
