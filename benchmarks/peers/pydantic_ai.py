"""pydantic-ai: its `FunctionModel`, made for tests."""

from pydantic_ai import Agent, Tool, UsageLimits
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from . import work


def conversation(turns, *, asynchronous):
    async def answer(messages, info):
        done = (len(messages) - 1) // 2
        if done < turns:
            return ModelResponse(parts=[ToolCallPart(work.NAME, work.TEXT, tool_call_id=f"c{done}")])
        return ModelResponse(parts=[TextPart(work.DONE)])

    tool = Tool(work.find_async if asynchronous else work.find, name=work.NAME)
    agent = Agent(FunctionModel(answer), tools=[tool])

    unlimited = UsageLimits(request_limit=None)

    def checked(result):
        assert result.output == work.DONE, result
        return result

    async def arun():
        return checked(await agent.run(work.QUESTION, usage_limits=unlimited))

    def run():
        return checked(agent.run_sync(work.QUESTION, usage_limits=unlimited))

    return arun if asynchronous else run
