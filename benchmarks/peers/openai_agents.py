"""openai-agents: a subclass of its `Model`. Its tracing is off, since it would send the traces away."""

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from . import work


class Scripted(Model):
    def __init__(self, turns: int) -> None:
        self.turns = turns

    async def get_response(self, system_instructions, input, *args, **kwargs):
        done = 0 if isinstance(input, str) else (len(input) - 1) // 2
        if done < self.turns:
            item = ResponseFunctionToolCall(
                arguments=work.TEXT, call_id=f"c{done}", id=f"i{done}", name=work.NAME, type="function_call"
            )
        else:
            text = ResponseOutputText(annotations=[], text=work.DONE, type="output_text")
            item = ResponseOutputMessage(
                id="last", content=[text], role="assistant", status="completed", type="message"
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


def conversation(turns, *, asynchronous):
    set_tracing_disabled(True)
    tool = function_tool(work.find_async if asynchronous else work.find, name_override=work.NAME, strict_mode=False)
    agent = Agent(name="finder", model=Scripted(turns), tools=[tool])

    def checked(result):
        assert result.final_output == work.DONE, result
        return result

    async def arun():
        return checked(await Runner.run(agent, work.QUESTION, max_turns=turns + 1))

    def run():
        return checked(Runner.run_sync(agent, work.QUESTION, max_turns=turns + 1))

    return arun if asynchronous else run
