"""LangGraph: its prebuilt agent around a subclass of langchain-core's `BaseChatModel`."""

import warnings

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.prebuilt import create_react_agent

from . import work


class Scripted(BaseChatModel):
    turns: int

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        done = (len(messages) - 1) // 2
        if done < self.turns:
            call = {"name": work.NAME, "args": work.ARGUMENTS, "id": f"c{done}", "type": "tool_call"}
            message = AIMessage(content="", tool_calls=[call])
        else:
            message = AIMessage(content=work.DONE)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        return self._generate(messages)


def conversation(turns, *, asynchronous):
    if asynchronous:
        tool = StructuredTool.from_function(coroutine=work.find_async, name=work.NAME, description=work.DESCRIPTION)
    else:
        tool = StructuredTool.from_function(work.find, name=work.NAME, description=work.DESCRIPTION)
    with warnings.catch_warnings(action="ignore"):  # it has moved to another package, which is not LangGraph
        graph = create_react_agent(Scripted(turns=turns), [tool])

    question, config = {"messages": [("user", work.QUESTION)]}, {"recursion_limit": 2 * turns + 5}

    def checked(result):
        assert result["messages"][-1].content == work.DONE, result["messages"][-1]
        return result

    async def arun():
        return checked(await graph.ainvoke(question, config=config))

    def run():
        return checked(graph.invoke(question, config=config))

    return arun if asynchronous else run
