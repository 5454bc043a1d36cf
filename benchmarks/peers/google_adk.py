"""google-adk: a subclass of its `BaseLlm`, run by its runner in memory.

Its `run` for synchronous code has a thread and a queue around `run_async`; `asyncio.run` is the cheaper way in.
"""

import asyncio
import logging

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from . import work


class Scripted(BaseLlm):
    turns: int

    async def generate_content_async(self, llm_request, stream=False):
        done = (len(llm_request.contents) - 1) // 2
        if done < self.turns:
            part = types.Part(function_call=types.FunctionCall(id=f"c{done}", name=work.NAME, args=work.ARGUMENTS))
        else:
            part = types.Part(text=work.DONE)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def conversation(turns, *, asynchronous):
    logging.disable(logging.WARNING)  # a line for every answer without token counts
    agent = LlmAgent(
        name="finder", model=Scripted(model="scripted", turns=turns),
        tools=[work.find_async if asynchronous else work.find],
    )  # fmt: skip
    runner = InMemoryRunner(agent=agent)

    async def arun():
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
        question = types.Content(role="user", parts=[types.Part(text=work.QUESTION)])
        events = [
            event
            async for event in runner.run_async(
                user_id="u", session_id=session.id, new_message=question, run_config=RunConfig(max_llm_calls=0)
            )
        ]
        assert events[-1].content.parts[0].text == work.DONE, events[-1]
        assert len(events) == 2 * turns + 1, len(events)
        return runner, events

    def run():
        return asyncio.run(arun())

    return arun if asynchronous else run
