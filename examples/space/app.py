"""SmolLM2 answers, and shows how sure it was: a space for a hosted service, or `python examples/space/app.py`."""

from __future__ import annotations

import os

import gradio as gr

import semtoken as st
from semtoken.replies.checking.doubts import doubts_of, percent

MODEL = os.environ.get("SPACE_MODEL", "HuggingFaceTB/SmolLM2-135M-Instruct")
LONGEST = 500
"""Characters of a question."""
EXAMPLES = ["What is the capital of Turkey?", "Who wrote Pride and Prejudice?", "When did the Titanic sink?"]
CAREFUL = "The model is small. It is often sure of something false: low doubt does not make an answer true."

model = st.ScoredModel.from_pretrained(MODEL)


def ask(question: str) -> tuple[list[tuple[str, float]], str, list[list[str]]]:
    """The answer with the doubt of each token, a sentence, and the doubtful phrases with their rivals."""
    question = question.strip()[:LONGEST]
    if not question:
        raise gr.Error("Ask something.")
    prompt = [{"role": "user", "content": question}] if model.tokenizer.chat_template else question
    [answer] = model.generate([prompt], max_new_tokens=48)
    shown = [(token.text, 1 - token.agreeing_probability) for token in answer.tokens]
    rows = []
    for doubt in doubts_of(answer)[:5]:
        rivals = ", ".join(f"{text} ({percent(share)})" for text, share in doubt.alternatives)
        rows.append([doubt.text, percent(doubt.confidence), rivals])
    return shown, f"**Confidence {answer.confidence:.2f}.** {answer.explanation}", rows


with gr.Blocks(title="How sure is the model?") as demo:
    gr.Markdown(f"# How sure is the model?\n{CAREFUL}")
    question = gr.Textbox(label="Question", max_length=LONGEST)
    button = gr.Button("Ask", variant="primary")
    tokens = gr.HighlightedText(label="Answer: the darker a word, the more doubtful", combine_adjacent=False)
    said = gr.Markdown()
    table = gr.Dataframe(
        headers=["Phrase", "Confidence", "Also likely at its first token"], label="Most doubtful first"
    )
    gr.Examples(EXAMPLES, question)
    gr.on([button.click, question.submit], ask, question, [tokens, said, table], api_name="ask")

if __name__ == "__main__":
    demo.launch()
