"""The official Python clients against a server whose model answers by rules: python client.py URL."""

import json
import sys

import anthropic
import openai
from pydantic import BaseModel

url = sys.argv[1]
c = openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0)
model = "fake"


def user(text):
    return {"role": "user", "content": text}


a = c.chat.completions.create(model=model, messages=[user("say hello")], logprobs=True, top_logprobs=2)
assert a.choices[0].message.content == "hello" and len(a.choices[0].logprobs.content) == 6
text = ""
for e in c.chat.completions.create(model=model, messages=[user("say good day")], stream=True, stream_options={"include_usage": True}):
    text += e.choices[0].delta.content or "" if e.choices else ""
    usage = e.usage
assert text == "good day" and usage.completion_tokens == 9

tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
messages = [user('call weather {"city": "Rome"}')]
for turn in range(3):
    with c.chat.completions.stream(model=model, messages=messages, tools=tools) as s:
        m = s.get_final_completion().choices[0].message
    if not m.tool_calls:
        break
    messages.append(m.to_dict())
    for call in m.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny in " + json.loads(call.function.arguments)["city"]})
assert m.content == "The tool said sunny in Rome", m


class Person(BaseModel):
    age: int
    name: str


p = c.chat.completions.parse(model=model, messages=[user("x")], response_format=Person)
assert p.choices[0].message.parsed == Person(age=7, name="text"), p

r = c.responses.create(model=model, input="say one")
assert r.output_text == "one"
with c.responses.stream(model=model, input="think two", previous_response_id=r.id) as s:
    kinds = [e.type for e in s]
    assert s.get_final_response().output_text == "It is two"
assert kinds[0] == "response.created" and kinds[-1] == "response.completed" and "response.reasoning_text.delta" in kinds, kinds
assert c.responses.parse(model=model, input="x", text_format=Person).output_parsed.age == 7
c.responses.delete(r.id)

for call, kind in [
    (lambda: c.embeddings.create(model=model, input="x"), openai.BadRequestError),
    (lambda: c.chat.completions.create(model="none", messages=[user("x")]), openai.NotFoundError),
    (lambda: c.responses.retrieve(r.id), openai.NotFoundError),
    (lambda: c.chat.completions.create(model=model, messages=[user("x")], temperature=9), openai.BadRequestError),
]:
    try:
        call()
    except kind as e:
        assert e.body["message"], e
    else:
        raise AssertionError(kind)
assert model in [m.id for m in c.models.list()]
b = c.completions.create(model=model, prompt=["say a", "say b"], logprobs=1)
assert [x.text for x in b.choices] == ["a", "b"]
s = c.chat.completions.create(model=model, messages=[user("say on and on")], max_tokens=90000, extra_body={"ignore_eos": True}, stream=True)
next(s)
s.close()

k = anthropic.Anthropic(base_url=url, api_key="x", max_retries=0)
m = k.messages.create(model=model, max_tokens=100, messages=[user("say hello")])
assert m.content[0].text == "hello" and m.stop_reason == "end_turn"
with k.messages.stream(model=model, max_tokens=100, messages=[user("think four")]) as s:
    assert "".join(s.text_stream) == "It is four"
    assert [x.type for x in s.get_final_message().content] == ["thinking", "text"]
tool = [{"name": "weather", "input_schema": {"type": "object"}}]
with k.messages.stream(model=model, max_tokens=200, tools=tool, messages=[user('call weather {"city": "Rome"}')]) as s:
    m = s.get_final_message()
assert m.stop_reason == "tool_use" and m.content[1].input == {"city": "Rome"}, m


@anthropic.beta_tool
def weather(city: str) -> str:
    """Tells the weather."""
    return "dry in " + city


m = k.beta.messages.tool_runner(model=model, max_tokens=200, tools=[weather], messages=[user('call weather {"city": "Rome"}')]).until_done()
assert m.content[0].text == "The tool said dry in Rome", m
assert k.messages.count_tokens(model=model, messages=[user("hi")]).input_tokens > 5
try:
    k.messages.create(model="none", max_tokens=1, messages=[user("x")])
except anthropic.NotFoundError as e:
    assert e.body["error"]["type"] == "not_found_error"
else:
    raise AssertionError("no error")
print("openai and anthropic: ok")
