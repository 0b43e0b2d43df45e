// Small helpers of all views: numbers for people, what a row of a file holds, and files to save.
import { html } from "./preact.js";
import { S, number } from "./strings.js";

export const PAGE_ROWS = 50;
const FEW_LABELS = 100; // below this a probability is shown in tenths
const WEAK = 0.5;
const SOME = 0.85;

export const shown = (value) => (value === null || value === undefined ? "–" : number(value));
export const level = (confidence) => (confidence < WEAK ? "weak" : confidence < SOME ? "some" : "");
export const calibrationOf = (block) => block?.calibration ?? (block?.probability_correct === undefined ? null : block);
export const probabilityOf = (block) => calibrationOf(block)?.probability_correct ?? null;

// A probability with its bounds, with no more digits than its labels support.
export function probabilityText(block) {
  const found = calibrationOf(block);
  if (!found || found.probability_correct === null || found.probability_correct === undefined) return "–";
  if (!(found.n_labels >= FEW_LABELS)) return S.tenths(found.probability_correct);
  return S.probability(found.probability_correct) + (found.probability_correct_interval === undefined ? "" : S.range(...found.probability_correct_interval));
}

// Places in a text come from Python, which counts characters. Here an emoji counts two, so its text is cut as a list of
// characters: that of the last text, since many places of one text come after each other.
let latest = { text: "", characters: "" };
function charactersOf(text) {
  if (text !== latest.text) latest = { text, characters: /[\ud800-\udbff]/.test(text) ? [...text] : text };
  return latest.characters;
}
export const cutOut = (text, start, end) => {
  const found = charactersOf(text).slice(start, end);
  return typeof found === "string" ? found : found.join("");
};
export const sizeOf = (text) => charactersOf(text).length;

export function save(name, lines) {
  const url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "application/jsonl" }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// ---- rows of a file -------------------------------------------------------------------------------------------------

// What was asked: the question, or the last message of the user, whose content may come in pieces.
export const promptOf = (row) => {
  const prompt = row.question ?? row.prompt ?? row.messages ?? "";
  if (!Array.isArray(prompt)) return typeof prompt === "string" ? prompt : JSON.stringify(prompt);
  const content = (prompt.filter((one) => one?.role === "user").at(-1) ?? prompt.at(-1))?.content ?? "";
  return Array.isArray(content) ? content.map((piece) => piece?.text).filter(Boolean).join("\n") : String(content);
};

// Images of what was asked about: only those that are in the page.
export const imagesOf = (row) => (Array.isArray(row.images) ? row.images : []).filter((url) => typeof url === "string" && url.startsWith("data:image/"));

// The number on top of an answer, in [0, 1], higher for surer ones; nothing in files that have none.
export const confidenceOf = (row) => row.confidence ?? undefined;
export const intervalOf = (row) => row.interval ?? row.confidence_interval;

// Larger for riskier answers: what the page was made to rank by, the confidence, or else the log of the score, which keeps
// the digits that scores of long answers lose.
export const riskOf = (row) => {
  if (typeof row.risk === "number") return row.risk;
  const confidence = confidenceOf(row);
  if (confidence !== undefined && confidence !== null) return -confidence;
  return -(row.log_confidence ?? (row.sequence_uncertainty >= 1 ? -Infinity : Math.log1p(-row.sequence_uncertainty)));
};

// Doubtful stretches as `semtoken check` writes them, in the form of parts.
const asParts = (row) => (row.marks ?? []).map((mark) => ({ ...mark, text: cutOut(row.text, mark.start, mark.end), present: true }));

// Labels as every command reads them. One that is taken away here is no longer in what is saved.
const VERDICTS = { true: true, yes: true, 1: true, "1.0": true, false: false, no: false, 0: false, "0.0": false };

export function asRow({ correct, ...row }) {
  const label = VERDICTS[String(correct).trim().toLowerCase()] ?? null;
  const found = { ...row, ...(label === null ? { correct } : {}), text: String(row.text ?? row.response ?? row.answer ?? ""), label };
  return found.marks && !found.parts ? { ...found, parts: asParts(found) } : found;
}

// JSON, with whole numbers that are too large for a number of JavaScript as texts: ids, of which none must become another.
export const parseJson = (text) =>
  JSON.parse(text, (key, value, context) => (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source) ? context.source : value));

export function parseLines(text) {
  const rows = [];
  let number = 0;
  for (const line of text.split("\n")) {
    number += 1;
    if (!line.trim()) continue;
    let row = null;
    try {
      row = parseJson(line);
    } catch {
      row = null;
    }
    if (row && typeof row === "object" && row.scored && typeof row.scored === "object") row = { ...row, ...row.scored };
    if (!row || typeof row.sequence_uncertainty !== "number" || !(row.sequence_uncertainty >= 0 && row.sequence_uncertainty <= 1)) throw new Error(S.badLine(number));
    rows.push(asRow(row));
  }
  if (!rows.length) throw new Error(S.emptyFile);
  return rows;
}

// ---- parts of every view --------------------------------------------------------------------------------------------

// On a narrow screen the bounds go below the probability.
export const Probability = ({ row }) => {
  const [probability_correct, ...bounds] = probabilityText(row).split(/(?= \()/);
  return html`${probability_correct}${bounds.map((one) => html`<span class="range">${one}</span>`)}`;
};

export const Pages = ({ page, setPage, count }) => {
  const first = page * PAGE_ROWS;
  return html`<div class="row">
    <button disabled=${page === 0} onClick=${() => setPage(page - 1)}>${S.previous}</button>
    <span>${S.pages(Math.min(first + 1, count), Math.min(first + PAGE_ROWS, count), count)}</span>
    <button disabled=${first + PAGE_ROWS >= count} onClick=${() => setPage(page + 1)}>${S.next}</button>
  </div>`;
};

export const Choose = ({ label, onFile }) =>
  html`<div class="drop" onDragOver=${(event) => event.preventDefault()} onDrop=${(event) => { event.preventDefault(); onFile(event.dataTransfer.files); }}>
    <label>${label} <input type="file" accept=".jsonl,.json,.ndjson" onChange=${(event) => onFile(event.target.files)} /></label>
  </div>`;
