"""A chat model that says what its script says: no network, no chance."""

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ScriptedModel(BaseChatModel):
    """Replies with the entry of its script that has the number of replies since the last question.

    An entry is a text, or a list of tool calls. The last one is said for ever.
    """

    script: list

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **options):
        asked_at = max((at for at, one in enumerate(messages) if one.type == "human"), default=-1)
        replies = [one for one in messages[asked_at + 1 :] if one.type == "ai"]
        turn = sum(one.type == "human" for one in messages)
        entry = self.script[min(len(replies), len(self.script) - 1)]
        name = f"ai-{turn}-{len(replies)}"
        if isinstance(entry, str):
            said = AIMessage(f"{entry} (turn {turn}, {len(messages)} messages)", id=name)
        else:
            calls = [{**call, "id": f"{name}-{at}", "type": "tool_call"} for at, call in enumerate(entry)]
            said = AIMessage("", tool_calls=calls, id=name)
        return ChatResult(generations=[ChatGeneration(message=said)])
