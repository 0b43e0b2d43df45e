// Asking the server: the answer as it streams, and the view with its one box.
import { html, useRef, useState } from "./preact.js";
import { S } from "./strings.js";
import { Card, Legend } from "./answer.js";
import { probabilityOf, confidenceOf, level } from "./helpers.js";

const MEANINGS = 4; // that compete at a doubtful place

// Events of a stream as they come; the text grows, and the last block holds the score.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const data = line.startsWith("data:") ? line.slice(5).trim() : "";
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

// The key stays in the memory of this page: it is never stored, and it goes to this server only.
const headersFor = (key) => (key ? { authorization: `Bearer ${key}` } : {});

export async function models(key) {
  const response = await fetch("./v1/models", { headers: headersFor(key) });
  if (!response.ok) return [];
  return ((await response.json()).data ?? []).map((one) => one.id);
}

// What the server said was wrong.
export async function failure(response) {
  try {
    const body = await response.json();
    return body.error?.message ?? response.statusText;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

// The words of an answer that is still coming, with their confidences: `words` with what a chunk adds to `text`. The
// score so far falls by the probability of each token, so the words follow from it wherever all steps so far are settled.
export function grown(words, text, block) {
  const [low, high] = block?.sequence_uncertainty_interval ?? [0, 1];
  const settled = block?.final === false && high - low < 1e-9 && block.sequence_uncertainty < 1 - 1e-9;
  if (!settled) return words;
  const last = words[words.length - 1] ?? { end: 0, left: 1 };
  const left = 1 - block.sequence_uncertainty;
  const piece = text.slice(last.end);
  if (!piece) return words;
  const confidence = Math.min(1, left / last.left);
  const goes = words.length && !/^\s/.test(piece);
  if (goes) return [...words.slice(0, -1), { ...last, end: text.length, left, confidence: last.confidence * confidence }];
  const start = last.end + piece.length - piece.trimStart().length;
  return [...words, { start, end: text.length, left, confidence }];
}

export async function ask(question, { info, model, key, method, signal, onText }) {
  const wanted = { tokens: true, competing: MEANINGS, ...(method ? { methods: [method] } : {}), ...(info?.parts ? { parts: "auto" } : {}), ...(info?.disputes ? { disputes: MEANINGS } : {}) };
  const body = { model, stream: true, messages: [{ role: "user", content: question }], semtoken: wanted };
  const headers = { "content-type": "application/json", ...headersFor(key) };
  const response = await fetch("./v1/chat/completions", { method: "POST", signal, headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(await failure(response));
  let text = "";
  let block = null;
  let words = [];
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices?.[0];
    if (!choice) continue;
    text += choice.delta?.content ?? "";
    if (choice.semtoken && choice.semtoken.final !== false) block = choice.semtoken;
    words = grown(words, text, choice.semtoken);
    onText?.({ text, words });
  }
  const asked = method && block ? { asked_method: { name: method, title: info.methods[method] } } : {};
  return { text, ...(block ?? { reason: S.noScore }), ...asked };
}

// What went wrong, as a sentence; nothing if it was the user who stopped it.
export const sentence = (problem) => (problem.name === "AbortError" ? "" : problem instanceof TypeError ? S.serverGone : problem.message);

export function Server({ info, server, setServer }) {
  if (!info?.upstream) return null;
  const load = async () => {
    const found = await models(server.key).catch(() => []);
    setServer({ ...server, models: found, model: server.model || found[0] || "" });
  };
  return html`<details class="server" open=${!server.model}>
    <summary>${S.upstream(info.upstream)}${server.model ? `: ${server.model}` : ""}</summary>
    <div class="row">
      <label>${S.key} <input type="password" autocomplete="off" value=${server.key} onInput=${(e) => setServer({ ...server, key: e.target.value })} /></label>
      <label>${S.model} <input list="models" value=${server.model} onInput=${(e) => setServer({ ...server, model: e.target.value })} /></label>
      <datalist id="models">${server.models.map((name) => html`<option value=${name} />`)}</datalist>
      <button type="button" onClick=${load}>${S.listModels}</button>
    </div>
    <p class="note">${S.keyNote}</p>
  </details>`;
}

// An answer that is still coming, with its doubtful words marked; the phrases take their place when it is complete.
function Coming({ text, words }) {
  const marked = words.filter((word) => level(word.confidence) !== "" && word.end > word.start);
  const cuts = marked.flatMap((word, i) => [
    text.slice(marked[i - 1]?.end ?? 0, word.start),
    html`<span class=${`mark ${level(word.confidence)}`}>${text.slice(word.start, word.end)}</span>`,
  ]);
  return [...cuts, text.slice(marked[marked.length - 1]?.end ?? 0)];
}

export function Ask({ info, server, setServer, remember }) {
  const [question, setQuestion] = useState("");
  const [running, setRunning] = useState(null);
  const [answers, setAnswers] = useState([]);
  const [error, setError] = useState("");
  const [method, setMethod] = useState("");
  const stopper = useRef(null);
  const model = info?.upstream ? server.model : info?.model;
  const submit = async (event) => {
    event.preventDefault();
    if (!question.trim() || running !== null) return;
    stopper.current = new AbortController();
    setError("");
    setRunning({ text: "", words: [] });
    try {
      const answer = await ask(question, { info, model, key: server.key, method, signal: stopper.current.signal, onText: setRunning });
      setAnswers((before) => [{ question, answer }, ...before]);
      remember({ question, answer, model });
    } catch (problem) {
      setError(sentence(problem));
    }
    setRunning(null);
  };
  return html`<form class="ask" onSubmit=${submit}>
      <label for="question">${S.question}</label>
      <input id="question" dir="auto" value=${question} onInput=${(e) => setQuestion(e.target.value)} />
      ${running === null
        ? html`<button class="main">${S.send}</button>`
        : html`<button type="button" onClick=${() => stopper.current.abort()}>${S.stop}</button>`}
    </form>
    <${Server} ...${{ info, server, setServer }} />
    ${Object.keys(info?.methods ?? {}).length > 0 && html`<p class="row"><label for="number">${S.number}</label> <select id="number" value=${method} onChange=${(e) => setMethod(e.target.value)}>
      <option value="">${S.usualNumber}</option>
      ${Object.entries(info.methods).map(([name, title]) => html`<option value=${name}>${title}</option>`)}
    </select></p>`}
    <div role="status">${running !== null &&
    html`<article class="card"><p class="answer" dir="auto">${running.text ? html`<${Coming} ...${running} />` : S.asking}</p>${running.text && info?.disputes && html`<p class="note">${S.following}</p>`}</article>`}</div>
    ${error && html`<p role="alert" class="card">${error}</p>`}
    ${answers.map((one, i) => html`<${Card} key=${answers.length - i} answer=${one.answer} question=${one.question} guaranteed=${i > 0} />`)}
    ${answers.length === 0 && running === null && html`<p class="note">${S.askHint}</p>
      <div class="row" role="group" aria-label=${S.examplesName}>${S.examples.map((text) => html`<button onClick=${() => setQuestion(text)}>${text}</button>`)}</div>`}
    ${answers.length > 0 && html`<p class="note"><span class="click-hint">${S.clickHint}</span> ${S.sureCanBeWrong}</p>`}
    <${Legend} ranks=${answers.some(({ answer }) => confidenceOf(answer) !== undefined && probabilityOf(answer) === null)} />`;
}
