"""LangChain's client against a server whose model answers by rules: python langchain_client.py URL."""

import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(base_url=sys.argv[1] + "/v1", api_key="x", model="fake", max_retries=0)
assert llm.invoke("say hello").content == "hello"
assert "".join(x.content for x in llm.stream("say good day")) == "good day"


@tool
def weather(city: str) -> str:
    """The weather."""
    return "sunny in " + city


bound = llm.bind_tools([weather])
messages = [("user", 'call weather {"city": "Rome"}')]
m = bound.invoke(messages)
messages += [m] + [weather.invoke(x) for x in m.tool_calls]
assert bound.invoke(messages).content == "The tool said sunny in Rome"
schema = {"title": "p", "type": "object", "properties": {"age": {"type": "integer"}}}
assert llm.with_structured_output(schema, method="json_schema").invoke("x")["age"] == 7
print("langchain: ok")
