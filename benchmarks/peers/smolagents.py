"""smolagents: a subclass of its `Model`. It has no async handlers."""

from smolagents import ChatMessage, MessageRole, Model, Tool, ToolCallingAgent
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

from . import work


class Finder(Tool):
    name = work.NAME
    description = work.DESCRIPTION
    inputs = {
        "path": {"type": "string", "description": "Where to begin."},
        "pattern": {"type": "string", "description": "What to look for."},
        "mode": {"type": "string", "description": "How the pattern is written.", "enum": ["regex", "literal", "glob"]},
        "span": {"type": "object", "description": "The first and the last line."},
        "globs": {"type": "array", "description": "Which files."},
        "limit": {"type": "integer", "description": "How many lines at most."},
    }
    output_type = "string"

    def forward(self, path, pattern, mode, span, globs, limit):
        return f"{path}:{limit}"


class Scripted(Model):
    def __init__(self, turns: int) -> None:
        super().__init__(model_id="scripted")
        self.turns, self.done = turns, 0

    def generate(self, messages, **kwargs):
        name, arguments = (
            (work.NAME, work.ARGUMENTS) if self.done < self.turns else ("final_answer", {"answer": work.DONE})
        )
        self.done += 1
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(function=function, id=f"c{self.done}", type="function")
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


def conversation(turns, *, asynchronous):
    def run():
        agent = ToolCallingAgent(tools=[Finder()], model=Scripted(turns), max_steps=turns + 1, verbosity_level=-1)
        result = agent.run(work.QUESTION)
        assert result == work.DONE, result
        return agent, result

    if asynchronous:
        raise NotImplementedError("no async handlers")
    return run
