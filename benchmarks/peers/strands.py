"""strands-agents: a subclass of its `Model`. Its window over the messages is off: it keeps all, as the others do."""

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models import Model

from . import work


class Scripted(Model):
    def __init__(self, turns: int) -> None:
        self.turns = turns

    def update_config(self, **model_config):
        pass

    def get_config(self):
        return {}

    def structured_output(self, *args, **kwargs):
        raise NotImplementedError

    async def stream(self, messages, *args, **kwargs):
        done = (len(messages) - 1) // 2
        yield {"messageStart": {"role": "assistant"}}
        if done < self.turns:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": work.NAME, "toolUseId": f"c{done}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": work.TEXT}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": work.DONE}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if done < self.turns else "end_turn"}}


def conversation(turns, *, asynchronous):
    finder = tool(name=work.NAME)(work.find_async if asynchronous else work.find)
    model = Scripted(turns)

    def make():
        return Agent(model=model, tools=[finder], callback_handler=None, conversation_manager=NullConversationManager())

    def checked(agent, result):
        assert str(result).strip() == work.DONE, result
        assert len(agent.messages) == 2 * turns + 2, len(agent.messages)
        return agent, result

    async def arun():
        agent = make()
        return checked(agent, await agent.invoke_async(work.QUESTION))

    def run():
        agent = make()
        return checked(agent, agent(work.QUESTION))

    return arun if asynchronous else run
