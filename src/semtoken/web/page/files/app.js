// The page shows what the server or the file says. It computes no scores: chances, levels and parts come with the data.
import { html, render, useEffect, useMemo, useRef, useState } from "./preact.js";
import { S } from "./strings.js";

const PAGE_ROWS = 50;
const LONG = 12; // tokens: from here on the product says little but the length
const WEAK = 0.5;
const SOME = 0.85;

const embedded = () => {
  const element = document.getElementById("data");
  return element ? JSON.parse(element.textContent) : null;
};

// ---- small helpers --------------------------------------------------------------------------------------------------

export const shown = (value) => {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && value < 0.001) return "< 0.001";
  if (value !== 1 && value > 0.999) return "> 0.999";
  return value.toFixed(3);
};
const level = (confidence) => (confidence < WEAK ? "weak" : confidence < SOME ? "some" : "");
const chanceOf = (block) => block?.calibration?.chance ?? block?.chance ?? null;
const calibrationOf = (block) => block?.calibration ?? (block?.chance === undefined ? null : block);

function save(name, lines) {
  const url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "application/jsonl" }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Character ranges to mark: the parts that came with the answer, or else its tokens without the blanks around them.
function partsOf(answer) {
  if (answer.parts) return answer.parts.filter((part) => part.present !== false && part.end > part.start && part.confidence !== null);
  const words = (answer.tokens ?? []).map((token) => {
    const piece = answer.text.slice(token.start, token.end);
    const start = token.start + piece.length - piece.trimStart().length;
    return { start, end: start + piece.trim().length, text: piece.trim(), confidence: token.clustered_probability };
  });
  return words.filter((word) => word.end > word.start);
}

function stretches(answer, all) {
  const parts = partsOf(answer);
  const marked = parts.filter((part) => (all || level(part.confidence)) && part.form_only !== true);
  const cuts = [];
  let position = 0;
  for (const part of [...marked].sort((a, b) => a.start - b.start)) {
    if (part.start < position) continue;
    if (part.start > position) cuts.push({ text: answer.text.slice(position, part.start) });
    cuts.push({ text: answer.text.slice(part.start, part.end), part });
    position = part.end;
  }
  if (position < answer.text.length) cuts.push({ text: answer.text.slice(position) });
  return cuts;
}

// The other tokens that were likely where a stretch of text is least sure.
function rivals(answer, part) {
  if (part.competitors?.length) return part.competitors.map((c) => ({ share: c.probability, text: c.continuation ?? c.tokens?.join(" ") }));
  const inside = (answer.tokens ?? []).filter((token) => token.start < part.end && token.end > part.start);
  const step = inside.reduce((least, token) => (!least || token.probability < least.probability ? token : least), null);
  if (!step) return [];
  const others = (step.alternatives ?? []).map((other) => ({ share: other.probability, text: other.text, counted: other.counted }));
  return [{ share: step.probability, text: step.text, chosen: true }, ...others].sort((a, b) => b.share - a.share);
}

// ---- an answer ------------------------------------------------------------------------------------------------------

function Also({ answer, part, id, close }) {
  const found = rivals(answer, part);
  return html`<section class="also" id=${id} aria-label=${S.at(part.text)} aria-live="polite" onKeyDown=${(event) => event.key === "Escape" && close()}>
    <h3 dir="auto">${S.at(part.text)}</h3>
    <ul>
      ${found.map(
        (other) => html`<li>
          <span>${S.percent(other.share)}</span>
          <meter min="0" max="1" value=${other.share} aria-hidden="true"></meter>
          <span dir="auto">${other.text}${other.counted ? html` <span class="dim">(${S.counted})</span>` : ""}</span>
        </li>`,
      )}
    </ul>
    <p class="note">${S.shares}</p>
  </section>`;
}

function Text({ answer, numbers, all, open, setOpen, panel }) {
  return html`<p class="answer" dir="auto" lang="">
    ${stretches(answer, all).map(({ text, part }, i) => {
      if (!part) return text;
      const kind = level(part.confidence);
      return html`<button
        class=${`mark ${kind}`}
        aria-expanded=${open === i}
        aria-controls=${panel}
        onClick=${() => setOpen(open === i ? null : i)}
      ><span class="visually-hidden">${kind === "weak" ? S.weak : kind === "some" ? S.some : ""}</span>${text}${numbers &&
      html`<small> ${S.percent(part.confidence)}</small>`}</button>`;
    })}
  </p>`;
}

function Verdict({ answer }) {
  const calibration = calibrationOf(answer);
  if (answer.reason && answer.uncertainty === undefined) return html`<p class="note">${S.unscored(answer.reason)}</p>`;
  if (!calibration || calibration.chance === null || calibration.chance === undefined) {
    return html`<p class="note">${S.uncalibrated(shown(answer.uncertainty))}</p>`;
  }
  const [lead, rest] = S.chance(calibration.chance, calibration.chance_lower, calibration.chance_upper, calibration.n_labels);
  const decided = calibration.decision;
  return html`<p>
      ${decided && html`<span class=${`badge ${decided === "answer" ? "accepted" : "check"}`}>${decided === "answer" ? S.accepted : S.check}</span>`}
      <strong>${lead}</strong><span class="dim">${rest}</span>
    </p>
    ${calibration.promise && html`<p class="note">${calibration.promise}</p>`}`;
}

function Tokens({ tokens }) {
  return html`<details>
    <summary>${S.everyToken}</summary>
    <div class="scroll" tabindex="0" role="region" aria-label=${S.everyToken}>
      <table>
        <thead><tr>${S.tokenColumns.map((name, i) => html`<th scope="col" class=${i === 1 || i === 2 ? "number" : ""}>${name}</th>`)}</tr></thead>
        <tbody>
          ${tokens.map(
            (token) => html`<tr>
              <td dir="auto">${JSON.stringify(token.text)}</td>
              <td class="number">${shown(token.probability)}</td>
              <td class="number">${shown(token.clustered_probability)}</td>
              <td dir="auto">${(token.alternatives ?? []).map((o) => `${o.text.trim() || JSON.stringify(o.text)} ${S.percent(o.probability)}`).join(", ")}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </details>`;
}

function Fields({ parts }) {
  const fields = parts.filter((part) => part.path).sort((a, b) => (a.confidence ?? -1) - (b.confidence ?? -1));
  if (!fields.length) return null;
  return html`<table>
    <caption>${S.fields}</caption>
    <thead><tr>${S.fieldColumns.map((name, i) => html`<th scope="col" class=${i === 2 ? "number" : ""}>${name}</th>`)}</tr></thead>
    <tbody>
      ${fields.map(
        (part) => html`<tr><td>${part.path}</td><td dir="auto">${part.text}</td><td class="number">${part.confidence === null ? "–" : S.percent(part.confidence)}</td></tr>`,
      )}
    </tbody>
  </table>`;
}

let panels = 0;
export function Card({ answer, question }) {
  const [open, setOpen] = useState(null);
  const [numbers, setNumbers] = useState(false);
  const [all, setAll] = useState(false);
  const [copied, setCopied] = useState(false);
  const panel = useMemo(() => `also-${++panels}`, []);
  const card = useRef(null);
  const close = () => {
    setOpen(null);
    card.current?.querySelector('[aria-expanded="true"]')?.focus();
  };
  const part = open === null ? null : stretches(answer, all)[open]?.part;
  const copy = async () => {
    await navigator.clipboard?.writeText(question);
    setCopied(true);
  };
  return html`<article class="card" ref=${card} onKeyDown=${(event) => event.key === "Escape" && open !== null && close()}>
    ${question && html`<h2 dir="auto">${question}</h2>`}
    <${Text} ...${{ answer, numbers, all, open, setOpen, panel }} />
    ${answer.truncated && html`<p class="note">${S.truncated}</p>`}
    ${answer.new_word_confidence !== undefined && answer.new_word_confidence !== null && (answer.tokens?.length ?? 0) >= LONG &&
    html`<p><strong>${S.typical(answer.new_word_confidence)}</strong></p>`}
    <${Verdict} answer=${answer} />
    ${answer.lower !== undefined && answer.upper - answer.lower > 0.001 && html`<p class="note">${S.bounds(shown(answer.lower), shown(answer.upper))}</p>`}
    ${(answer.flags ?? []).map((flag) => html`<p class="note">${flag.message}</p>`)}
    ${part && html`<${Also} ...${{ answer, part, id: panel, close }} />`}
    ${answer.parts && html`<${Fields} parts=${answer.parts} />`}
    <div class="row">
      ${question && html`<button onClick=${copy}>${copied ? S.copied : S.copy}</button>`}
      <label><input type="checkbox" checked=${numbers} onChange=${() => setNumbers(!numbers)} /> ${S.numbers}</label>
      <label><input type="checkbox" checked=${all} onChange=${() => { setAll(!all); setOpen(null); }} /> ${S.markAll}</label>
    </div>
    ${answer.tokens?.length && html`<${Tokens} tokens=${answer.tokens} />`}
  </article>`;
}

const Legend = () =>
  html`<p class="note">${S.legend.map(([kind, text]) => html`<span class=${`mark ${kind}`}>${kind ? text : ""}</span>${kind ? " " : text} `)}</p>`;

// ---- Ask ------------------------------------------------------------------------------------------------------------

// Events of a stream as they come; the text grows, and the last block holds the score.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
  }
}

async function ask(question, model, signal, onText) {
  const body = { model, stream: true, messages: [{ role: "user", content: question }], semtoken: { tokens: true, parts: "phrase" } };
  const send = (b) => fetch("./v1/chat/completions", { method: "POST", signal, headers: { "content-type": "application/json" }, body: JSON.stringify(b) });
  let response = await send(body);
  if (response.status === 400) response = await send({ ...body, semtoken: { tokens: true } });
  if (!response.ok) throw new Error((await response.json()).error?.message ?? response.statusText);
  let text = "";
  let block = {};
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices?.[0];
    if (!choice) continue;
    text += choice.delta?.content ?? "";
    if (choice.semtoken && choice.semtoken.final !== false) block = choice.semtoken;
    onText(text);
  }
  return { text, ...block };
}

function Ask({ info, remember }) {
  const [question, setQuestion] = useState("");
  const [running, setRunning] = useState(null);
  const [answers, setAnswers] = useState([]);
  const [error, setError] = useState("");
  const stopper = useRef(null);
  const submit = async (event) => {
    event.preventDefault();
    if (!question.trim() || running !== null) return;
    stopper.current = new AbortController();
    setError("");
    setRunning("");
    try {
      const answer = await ask(question, info?.model, stopper.current.signal, setRunning);
      setAnswers((before) => [{ question, answer }, ...before]);
      remember({ question, answer: { text: answer.text, uncertainty: answer.uncertainty }, model: info?.model });
    } catch (problem) {
      if (problem.name !== "AbortError") setError(problem instanceof TypeError ? S.serverGone : problem.message);
    }
    setRunning(null);
  };
  return html`<form class="ask" onSubmit=${submit}>
      <label for="question">${S.ask}</label>
      <input id="question" dir="auto" value=${question} placeholder=${S.question} onInput=${(e) => setQuestion(e.target.value)} />
      ${running === null
        ? html`<button class="main">${S.ask}</button>`
        : html`<button type="button" onClick=${() => stopper.current.abort()}>${S.stop}</button>`}
    </form>
    <div role="status">${running !== null && html`<article class="card"><p class="answer" dir="auto">${running || S.asking}</p></article>`}</div>
    ${error && html`<p role="alert" class="card">${error}</p>`}
    ${answers.map((one, i) => html`<${Card} key=${answers.length - i} answer=${one.answer} question=${one.question} />`)}
    <${Legend} />`;
}

// ---- File -----------------------------------------------------------------------------------------------------------

const promptOf = (row) => {
  const prompt = row.question ?? row.prompt ?? "";
  return typeof prompt === "string" ? prompt : (prompt.at?.(-1)?.content ?? JSON.stringify(prompt));
};

export function parseLines(text) {
  const rows = [];
  let number = 0;
  for (const line of text.split("\n")) {
    number += 1;
    if (!line.trim()) continue;
    let row = null;
    try {
      row = JSON.parse(line);
    } catch {
      row = null;
    }
    if (row && typeof row === "object" && row.scored && typeof row.scored === "object") row = { ...row, ...row.scored };
    if (!row || typeof row.uncertainty !== "number") throw new Error(S.badLine(number));
    rows.push({ ...row, text: String(row.text ?? row.response ?? ""), label: typeof row.correct === "boolean" ? row.correct : null });
  }
  return rows;
}

function Slider({ rows, cut, setCut, promised }) {
  const chance = chanceOf(rows[0] ?? {}) !== null;
  const accepted = rows.filter((row) => accepts(row, cut, chance));
  const wrong = accepted.reduce((sum, row) => sum + (1 - (chanceOf(row) ?? 0)), 0);
  const value = chance ? S.percent(cut) : cut.toFixed(2);
  return html`<div class="card">
    <label for="cut">${S.cut(value, chance)}</label>
    <input id="cut" type="range" min="0" max="1" step="0.01" value=${cut} onInput=${(event) => setCut(Number(event.target.value))} />
    <p role="status"><strong>${S.accepts(accepted.length, rows.length)}</strong>${chance ? S.expectedWrong(wrong.toFixed(1)) : ""}. ${promised ? html`<span class="dim">${S.promised(promised)}</span>` : ""}</p>
    <p class="note">${S.sureWrong}</p>
  </div>`;
}
const accepts = (row, cut, chance) => (chance ? (chanceOf(row) ?? -1) >= cut : row.uncertainty <= cut);

function File({ initial, promised }) {
  const [rows, setRows] = useState(initial ?? []);
  const [problem, setProblem] = useState("");
  const [cut, setCut] = useState(0.5);
  const [sort, setSort] = useState({ key: "risk", down: true });
  const [page, setPage] = useState(0);
  const [current, setCurrent] = useState(0);
  const [, redraw] = useState(0);
  const chance = rows.length > 0 && chanceOf(rows[0]) !== null;
  const sorted = useMemo(() => {
    // Scores of long answers are 1 to many digits; their logs still rank them.
    const keys = { risk: (row) => -(row.log_score ?? (row.uncertainty >= 1 ? -Infinity : Math.log1p(-row.uncertainty))), chance: (row) => -(chanceOf(row) ?? -1) };
    const key = keys[sort.key] ?? ((row) => (sort.key === "prompt" ? promptOf(row) : row.text));
    const withKeys = rows.map((row) => [key(row), row]);
    withKeys.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    if (sort.down) withKeys.reverse();
    return withKeys.map(([, row]) => row);
  }, [rows, sort]);
  const open = async (files) => {
    if (!files?.length) return;
    try {
      setRows(parseLines(await files[0].text()));
      setProblem("");
      setPage(0);
      setCurrent(0);
    } catch (error) {
      setProblem(error.message);
    }
  };
  const first = page * PAGE_ROWS;
  const visible = sorted.slice(first, first + PAGE_ROWS);
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const label = { y: true, n: false }[event.key];
    if (step) {
      event.preventDefault();
      setCurrent(Math.min(Math.max(current + step, 0), visible.length - 1));
    } else if (label !== undefined && visible[current]) {
      visible[current].label = visible[current].label === label ? null : label;
      redraw((n) => n + 1);
    }
  };
  const line = (row) => JSON.stringify({ ...row, label: undefined, ...(row.label === null ? {} : { correct: row.label }) });
  const header = (key, text, number) => {
    const active = sort.key === key;
    const direction = active ? (sort.down ? "descending" : "ascending") : "none";
    return html`<th scope="col" class=${number ? "number" : ""} aria-sort=${direction}>
      <button onClick=${() => { setSort({ key, down: active ? !sort.down : true }); setPage(0); }}>${text}${active ? (sort.down ? " ▼" : " ▲") : ""}</button>
    </th>`;
  };
  return html`<div
      class="drop"
      onDragOver=${(event) => event.preventDefault()}
      onDrop=${(event) => { event.preventDefault(); open(event.dataTransfer.files); }}
    >
      <p>${S.drop}</p>
      <label><span class="visually-hidden">${S.choose}</span><input type="file" accept=".jsonl,.json,.ndjson" onChange=${(event) => open(event.target.files)} /></label>
    </div>
    ${problem && html`<p role="alert" class="card">${problem}</p>`}
    ${rows.length > 0 &&
    html`<${Slider} ...${{ rows, cut, setCut, promised }} />
      <p class="note">${S.keys}</p>
      <div class="scroll" tabindex="0" role="region" aria-label=${S.views.file} onKeyDown=${onKey}>
        <table>
          <caption>${S.rows(rows.length)}</caption>
          <thead><tr>
            ${header("risk", S.columns.risk, true)}${chance && header("chance", S.columns.chance, true)}${header("prompt", S.columns.prompt)}${header("text", S.columns.text)}
            <th scope="col">${S.columns.label}</th>
          </tr></thead>
          <tbody>
            ${visible.map(
              (row, i) => html`<tr aria-current=${i === current} onClick=${() => setCurrent(i)}>
                <td class="number">${shown(row.uncertainty)}</td>
                ${chance && html`<td class="number">${chanceOf(row) === null ? "–" : S.percent(chanceOf(row))}</td>`}
                <td dir="auto">${promptOf(row)}</td>
                <td dir="auto">${row.text}</td>
                <td>${row.label === null ? "" : row.label ? S.right : S.wrong}</td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>
      <div class="row">
        <button disabled=${page === 0} onClick=${() => setPage(page - 1)}>${S.previous}</button>
        <span>${S.pages(first + 1, Math.min(first + PAGE_ROWS, sorted.length), sorted.length)}</span>
        <button disabled=${first + PAGE_ROWS >= sorted.length} onClick=${() => setPage(page + 1)}>${S.next}</button>
      </div>
      <div class="row">
        <button onClick=${() => save("labelled.jsonl", sorted.filter((row) => row.label !== null).map(line))}>${S.exportLabels}</button>
        <button onClick=${() => save("accepted.jsonl", sorted.filter((row) => accepts(row, cut, chance)).map(line))}>${S.exportAccepted}</button>
        <button onClick=${() => save("rest.jsonl", sorted.filter((row) => !accepts(row, cut, chance)).map(line))}>${S.exportRest}</button>
      </div>
      ${visible[current] && html`<${Card} key=${`${page}-${current}-${sort.key}-${sort.down}`} answer=${visible[current]} question=${promptOf(visible[current])} />`}`}`;
}

// ---- Calibration and history ----------------------------------------------------------------------------------------

function Plot({ title, points, diagonal, x, y }) {
  const at = (v) => 30 + 200 * v;
  const path = points.map(([a, b], i) => `${i ? "L" : "M"}${at(a)},${240 - at(b)}`).join("");
  return html`<figure class="card">
    <figcaption>${title}</figcaption>
    <svg viewBox="0 0 250 250" width="320" role="img" aria-label=${title}>
      <rect x="30" y="10" width="200" height="200" fill="none" stroke="currentColor" opacity=".4" />
      ${diagonal && html`<line x1="30" y1="210" x2="230" y2="10" stroke="currentColor" stroke-dasharray="4" opacity=".5" />`}
      <path d=${path} fill="none" stroke="var(--accent)" stroke-width="2" />
      ${points.map(([a, b]) => html`<circle cx=${at(a)} cy=${240 - at(b)} r="2.5" fill="var(--accent)" />`)}
      <text x="130" y="240" text-anchor="middle">${x}</text>
      <text x="12" y="110" text-anchor="middle" transform="rotate(-90 12 110)">${y}</text>
    </svg>
  </figure>`;
}

function Calibration({ card }) {
  if (!card) return html`<p class="card">${S.noCalibrator}</p>`;
  return html`<section class="card">
    <p>${S.labels(card.n_labels)}</p>
    ${card.promise && html`<p>${card.promise}</p>`}
    <div class="row">
      ${card.reliability && html`<${Plot} title="How often answers of a chance were right" points=${card.reliability} diagonal x="chance" y="right" />`}
      ${card.risk_coverage && html`<${Plot} title="Wrong among the answers let through" points=${card.risk_coverage} x="share answered" y="wrong among them" />`}
    </div>
  </section>`;
}

function History({ items, clear }) {
  if (!items.length) return html`<p class="card">${S.noHistory}</p>`;
  return html`<ul>${items.map((item) => html`<li dir="auto">${item.question} – ${item.answer.text} <span class="dim">${shown(item.answer.uncertainty)}, ${item.model}</span></li>`)}</ul>
    <button onClick=${clear}>${S.clear}</button>`;
}

// ---- the whole ------------------------------------------------------------------------------------------------------

const KEY = "semtoken.history";
const stored = () => {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? [];
  } catch {
    return [];
  }
};

function App({ data }) {
  const [info, setInfo] = useState(data?.info ?? null);
  const [history, setHistory] = useState(data ? [] : stored());
  const names = data ? (data.info?.calibrator ? ["file", "calibration"] : ["file"]) : ["ask", "file", "calibration", "history"];
  const [view, setView] = useState(names[0]);
  const tabs = useRef(null);
  useEffect(() => {
    if (!data) fetch("./semtoken/info").then((r) => r.json()).then(setInfo).catch(() => setInfo(null));
  }, []);
  const remember = (item) => {
    const items = [item, ...history].slice(0, 100);
    setHistory(items);
    localStorage.setItem(KEY, JSON.stringify(items));
  };
  const clear = () => {
    setHistory([]);
    localStorage.removeItem(KEY);
  };
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(view) + step + names.length) % names.length];
    setView(next);
    tabs.current.querySelector(`#tab-${next}`).focus();
  };
  const about = data ? data.name : [info?.model, info?.calibrator ? S.labels(info.calibrator.n_labels) : null].filter(Boolean).join(" · ");
  return html`<header>
      <h1>semtoken</h1>
      <p>${about}</p>
      <div role="tablist" aria-label="Views" ref=${tabs} onKeyDown=${onKey}>
        ${names.map(
          (name) => html`<button role="tab" id=${`tab-${name}`} aria-selected=${view === name} aria-controls="view" tabindex=${view === name ? 0 : -1} onClick=${() => setView(name)}>${S.views[name]}</button>`,
        )}
      </div>
    </header>
    <main>
      <div role="tabpanel" id="view" aria-labelledby=${`tab-${view}`}>
        ${view === "ask" && html`<${Ask} info=${info} remember=${remember} />`}
        ${view === "file" && html`<${File} initial=${data?.rows} promised=${info?.calibrator?.threshold} />`}
        ${view === "calibration" && html`<${Calibration} card=${info?.calibrator} />`}
        ${view === "history" && html`<${History} items=${history} clear=${clear} />`}
      </div>
    </main>`;
}

const data = embedded();
if (data) data.rows = data.rows.map((row) => ({ ...row, text: String(row.text ?? row.response ?? ""), label: typeof row.correct === "boolean" ? row.correct : null }));
render(html`<${App} data=${data} />`, document.getElementById("app"));
