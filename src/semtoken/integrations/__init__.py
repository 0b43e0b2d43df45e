"""semtoken inside the tools that people already use: one module for each tool.

A module imports its host when it is imported itself, needs nothing else of it, and says which versions it is for.
Hosts are no extras of semtoken, because those who want a module have its host already.

lm_polygraph.py   lm-polygraph: an estimator, and a calculator that keeps no arrays of the vocabulary
inspect_ai.py     Inspect: a provider with exact scores, a scorer around any other, metrics
lm_eval.py        lm-evaluation-harness: a model, and figures of any generative task
opentelemetry.py  OpenTelemetry: scores of `serve` and `proxy` as events
litellm.py        LiteLLM: a gate that holds uncertain answers back, a callback with every score
langchain.py      LangChain: a runnable that adds the uncertainty of a message
llm.py            the tool llm: models, and a command that shows the last answer
mcp.py            the Model Context Protocol: ask, score, check

What they share:

hosts.py          the hosts and their versions
events.py         a final score as the attributes of an OpenTelemetry event
messages.py       a message as a host keeps it, scored
local.py          a model in this process that answers requests in OpenAI's form
selective.py      flat figures on how well an uncertainty separates wrong answers from right ones

docs/integrations/ has a page for each.
"""
