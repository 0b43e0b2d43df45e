// The page shows what the server or the file says. It computes no scores: probabilities, levels and parts come with the data.
import { html, render, useEffect, useRef, useState } from "./preact.js";
import { S } from "./strings.js";
import { Ask } from "./ask.js";
import { Calibration } from "./calibration.js";
import { Compare } from "./compare.js";
import { Fields, fieldsOf } from "./fields.js";
import { File } from "./file.js";
import { Review } from "./review.js";
import { asRow, parseJson, Probability } from "./helpers.js";

const embedded = () => {
  const element = document.getElementById("data");
  return element ? parseJson(element.textContent) : null;
};

// ---- what this browser keeps ----------------------------------------------------------------------------------------

const KEY = "semtoken.history";
const LONGEST_HISTORY = 100;
const stored = () => {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? [];
  } catch {
    return [];
  }
};
const store = (items) => {
  try {
    localStorage.setItem(KEY, JSON.stringify(items));
  } catch {
    // full, or switched off: the list lives as long as the page
  }
};

function History({ items, clear }) {
  if (!items.length) return html`<p class="card">${S.noHistory}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${S.views.history}><table>
      <caption>${S.history}</caption>
      <thead><tr>${S.historyColumns.map((name, i) => html`<th scope="col" class=${i === 1 ? "number" : ""}>${name}</th>`)}</tr></thead>
      <tbody>${items.map(
        (item) => html`<tr><td><div class="dim" dir="auto">${item.question}</div><div dir="auto">${item.answer.text}</div></td>
          <td class="number">${item.answer.probability_correct === undefined ? S.confidence(item.answer.confidence) : html`<${Probability} row=${item.answer} />`}</td><td>${item.model}</td></tr>`,
      )}</tbody>
    </table></div>
    ${items.some(({ answer }) => answer.probability_correct === undefined) && html`<p class="note">${S.uncalibrated}</p>`}
    <div class="row"><button onClick=${clear}>${S.clear}</button></div>`;
}

// ---- the whole ------------------------------------------------------------------------------------------------------

function App({ data }) {
  const [info, setInfo] = useState(data?.info ?? null);
  const [gone, setGone] = useState(false);
  const [history, setHistory] = useState(data ? [] : stored());
  const [server, setServer] = useState({ key: "", model: "", models: [] });
  const [rows, setRows] = useState(data?.files[0].rows ?? []);
  // Not of a file that was opened here.
  const unscored = rows === data?.files[0].rows ? data.files[0].unscored : undefined;
  const [files, setFiles] = useState(data?.files.length > 1 ? data.files : [null, null]);
  // A file of extractions opens at its fields.
  const extracted = data?.files.length === 1 && rows.length > 0 && rows.every((row) => fieldsOf([row]).length);
  const views = [
    ...(extracted ? ["fields"] : []),
    ...(data ? [] : ["ask"]),
    ...(data?.files.length > 1 ? ["compare", "file"] : ["file", "compare"]),
    ...(fieldsOf(rows).length && !extracted ? ["fields"] : []),
    ...(data && !info?.calibrator ? [] : ["calibration"]),
    ...(info?.review && !data ? ["review"] : []),
    ...(data ? [] : ["history"]),
  ];
  const [view, setView] = useState(views[0]);
  const tabs = useRef(null);
  useEffect(() => {
    if (!data) fetch("./semtoken/info").then((r) => r.json()).then((found) => setInfo({ ...found, ask: true })).catch(() => setGone(true));
  }, []);
  const remember = ({ question, answer, model }) => {
    const { text, confidence, probability_correct, probability_correct_interval, n_labels } = answer;
    const kept = { text, confidence, ...(probability_correct === undefined ? {} : { probability_correct, probability_correct_interval, n_labels }) };
    const items = [{ question, answer: kept, model }, ...history].slice(0, LONGEST_HISTORY);
    setHistory(items);
    store(items);
  };
  const clear = () => {
    setHistory([]);
    store([]);
  };
  const onKey = (event) => {
    const to = { ArrowRight: views.indexOf(view) + 1, ArrowLeft: views.indexOf(view) - 1, Home: 0, End: views.length - 1 }[event.key];
    if (to === undefined) return;
    const next = views[(to + views.length) % views.length];
    event.preventDefault();
    setView(next);
    tabs.current.querySelector(`#tab-${next}`).focus();
  };
  const calibrator = info?.calibrator;
  const about = data ? data.files.map((file) => file.name).join(" · ") : [info?.model ?? info?.upstream, calibrator ? S.calibrated(calibrator.facts?.task, calibrator.n_labels) : null].filter(Boolean).join(" · ");
  return html`<header>
      <h1>semtoken</h1>
      <p dir="auto">${about}</p>
      <div role="tablist" aria-label=${S.viewsName} ref=${tabs} onKeyDown=${onKey}>
        ${views.map(
          (name) => html`<button role="tab" id=${`tab-${name}`} aria-selected=${view === name} aria-controls="view" tabindex=${view === name ? 0 : -1} onClick=${() => setView(name)}>${S.views[name]}</button>`,
        )}
      </div>
    </header>
    <main>
      <div role="tabpanel" id="view" aria-labelledby=${`tab-${view}`}>
        ${gone && html`<p role="alert" class="card">${S.serverGone}</p>`}
        <div hidden=${view !== "ask"}>${!data && html`<${Ask} ...${{ info, server, setServer, remember }} />`}</div>
        <div hidden=${view !== "file"}>${view === "file" && html`<${File} ...${{ rows, setRows, calibrator, unscored, by: rows[0]?.risk === undefined ? null : info?.by }} />`}</div>
        <div hidden=${view !== "compare"}>${view === "compare" && html`<${Compare} ...${{ info, server, files, setFiles }} />`}</div>
        ${view === "fields" && html`<${Fields} ...${{ rows, setRows, calibrator, unscored }} />`}
        ${view === "calibration" && html`<${Calibration} card=${calibrator} />`}
        ${view === "review" && html`<${Review} />`}
        ${view === "history" && html`<${History} items=${history} clear=${clear} />`}
      </div>
    </main>`;
}

const data = embedded();
if (data) data.files = data.files.map((file) => ({ ...file, rows: file.rows.map((row) => asRow({ ...file.common, ...row })) }));
render(html`<${App} data=${data} />`, document.getElementById("app"));
