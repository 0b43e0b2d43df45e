// The card of one answer: its text with the doubtful phrases marked, the verdict, what else the model considered.
import { html, useEffect, useMemo, useRef, useState } from "./preact.js";
import { S } from "./strings.js";
import { calibrationOf, confidenceOf, cutOut, imagesOf, intervalOf, level, shown, sizeOf } from "./helpers.js";

// Marks beyond the few weakest teach the eye to pass over them.
const MOST_MARKED = 5;
const FUNCTION_WORDS = new Set("a an the and or but of at by for with to from in on as that this it its is are was were be has have had not which who he she they his her their you we i".split(" "));

// Character ranges to mark: the parts that came with the answer, or else its phrases, each the product over its tokens:
// runs of words between function words and punctuation.
function partsOf(answer) {
  if (answer.parts) return answer.parts.filter((part) => part.present !== false && part.end > part.start && part.confidence !== null);
  const words = [];
  for (const token of answer.tokens ?? []) {
    const piece = cutOut(answer.text, token.start, token.end);
    const start = token.start + piece.length - piece.trimStart().length; // blanks count one here and there
    const last = words[words.length - 1];
    if (!piece.trim()) continue;
    const goesOn = last && last.end === token.start && !/^\s/.test(piece);
    if (goesOn) Object.assign(last, { end: start + [...piece.trim()].length, confidence: last.confidence * token.agreeing_probability });
    else words.push({ start, end: start + [...piece.trim()].length, confidence: token.agreeing_probability });
  }
  const phrases = [];
  let open = false; // whether the next word goes on with the last phrase
  for (const word of words) {
    const text = cutOut(answer.text, word.start, word.end);
    const letters = text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
    if (!letters || FUNCTION_WORDS.has(letters)) {
      open = false;
      continue;
    }
    const last = phrases.at(-1);
    if (open) Object.assign(last, { end: word.end, confidence: last.confidence * word.confidence });
    else phrases.push({ ...word });
    open = /[\p{L}\p{N}]$/u.test(text);
  }
  return phrases.map((phrase) => ({ ...phrase, text: cutOut(answer.text, phrase.start, phrase.end) }));
}

const doubtful = (part) => level(part.confidence) !== "" && part.form_only !== true;

const weakestOf = (answer) => partsOf(answer).filter(doubtful).sort((a, b) => a.confidence - b.confidence).slice(0, MOST_MARKED);

function stretches(answer, all) {
  const marked = all ? partsOf(answer) : weakestOf(answer);
  const cuts = [];
  let position = 0;
  for (const part of [...marked].sort((a, b) => a.start - b.start)) {
    if (part.start < position) continue;
    if (part.start > position) cuts.push({ text: cutOut(answer.text, position, part.start) });
    cuts.push({ text: cutOut(answer.text, part.start, part.end), part });
    position = part.end;
  }
  if (position < sizeOf(answer.text)) cuts.push({ text: cutOut(answer.text, position) });
  return cuts;
}

// What else was likely within a stretch of text: lists of { share, text }, one for each place that was looked at.
function rivals(answer, part) {
  if (part.rival) return [[{ share: part.rival_probability, text: part.rival }]];
  if (part.rivals) return [part.rivals.map(([text, share]) => ({ share, text }))];
  const inside = (one) => one.start < part.end && one.end > part.start;
  const followed = (answer.disputes ?? []).filter(inside).sort((a, b) => b.disagreement - a.disagreement);
  if (followed.length) return followed.map((one) => one.meanings.map((m) => ({ share: m.probability, text: m.continuation, chosen: m.chosen })));
  const grouped = (answer.competing ?? []).filter(inside).filter((one) => one.meanings.length > 1);
  if (grouped.length) return grouped.map((one) => one.meanings.map((m) => ({ share: m.probability, text: m.tokens.map(([text]) => text.trim()).join(", "), chosen: m.chosen })));
  const step = (answer.tokens ?? []).filter(inside).reduce((least, token) => (!least || token.probability < least.probability ? token : least), null);
  if (!step) return [];
  const others = (step.alternatives ?? []).map((other) => ({ share: other.probability, text: other.text, counted: other.counted }));
  return [[{ share: step.probability, text: step.text, chosen: true }, ...others].sort((a, b) => b.share - a.share)];
}

const Share = ({ share, text, chosen, counted }) =>
  html`<li>
    <span>${S.percent(share)}</span>
    <svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="of" width="100" height="10" /><rect class="part" width=${100 * share} height="10" /></svg>
    <span dir="auto">${text}${chosen ? html` <span class="dim">(${S.chosen})</span>` : counted ? html` <span class="dim">(${S.counted})</span>` : ""}</span>
  </li>`;

function Also({ answer, part, id, close }) {
  const found = rivals(answer, part);
  const explained = part.form_only ? S.formOnly : !found.length ? S.nothingKnown : answer.disputes ? S.sharesFollowed : part.rivals || part.rival ? S.mayGoOn : S.shares;
  return html`<section class="also" id=${id} aria-label=${S.at(part.text)} aria-live="polite">
    <h3 dir="auto">${S.at(part.text)}</h3>
    ${found.map((list) => html`<ul>${list.map((other) => html`<${Share} ...${other} />`)}</ul>`)}
    ${part.negation?.length ? html`<p>${S.negation(part.negation.map(([word]) => word))}</p>` : ""}
    <p class="note">${explained}</p>
    <button onClick=${close}>${S.close}</button>
  </section>`;
}

function Text({ answer, numbers, all, open, setOpen, panel }) {
  return html`<p class="answer" dir="auto" lang="">
    ${stretches(answer, all).map(({ text, part }, i) => {
      if (!part) return text;
      const kind = doubtful(part) ? level(part.confidence) : "";
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

// The number on top and what it is; the sequence uncertainty where a file has nothing else.
function ConfidenceSaid({ answer }) {
  const confidence = confidenceOf(answer);
  if (typeof confidence !== "number") return html`<p>${S.uncertain(shown(answer.sequence_uncertainty))}</p>`;
  const [lead, rest] = S.confidenceSaid(confidence, intervalOf(answer), answer.explanation);
  return html`<p><strong>${lead}</strong><span class="dim">${rest}</span></p>`;
}

// A number that was asked for by name in place of the confidence, or why it is not there.
function Asked({ answer }) {
  const { name, title } = answer.asked_method;
  const value = answer.scores?.[name];
  if (value === undefined) return html`<p class="note">${answer.scores_refused ?? S.noScore}</p><${ConfidenceSaid} answer=${answer} />`;
  const [lead, rest] = S.asked(title, value, answer.score_bounds?.[name]);
  return html`<p><strong>${lead}</strong><span class="dim">${rest}</span></p>`;
}

function Verdict({ answer, compared, guaranteed }) {
  const calibration = calibrationOf(answer);
  if (answer.reason && answer.confidence === undefined) return html`<p class="note">${S.noAnswerScore(answer.reason)}</p>`;
  if (!calibration || calibration.probability_correct === null || calibration.probability_correct === undefined) {
    if (!compared && answer.shown) return html`<p class="note">${answer.shown}</p>`;
    return html`${compared ? html`<p class="note">${S.noProbability}</p>` : !answer.asked_method && html`<${ConfidenceSaid} answer=${answer} />`}
      ${answer.calibrator_refused && html`<p class="note">${answer.calibrator_refused}</p>`}`;
  }
  const [lead, rest] = S.probability_correct(calibration.probability_correct, calibration.probability_correct_interval, calibration.n_labels);
  const decided = calibration.decision;
  const sentences = [guaranteed ? "" : calibration.guarantee ?? "", calibration.guarantee && decided === "answer" ? S.acceptedNote : ""];
  const said = sentences.filter(Boolean).join(" ");
  return html`<p>
      ${decided && html`<span class=${`badge ${decided === "answer" ? "accepted" : "check"}`}>${decided === "answer" ? S.accepted : S.check}</span>`}
      <strong>${lead}</strong><span class="dim">${rest}</span>
    </p>
    ${said && html`<p class="note">${said}</p>`}
    ${(calibration.calibrated_elsewhere ?? []).map((text) => html`<p class="note">${text}</p>`)}`;
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
              <td class="number">${shown(token.agreeing_probability)}</td>
              <td dir="auto">${(token.alternatives ?? []).map((o) => `${o.text.trim() || JSON.stringify(o.text)} ${S.percent(o.probability)}`).join(", ")}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </details>`;
}

// What is known of a field besides its confidence: its end, its other values, its flags.
export function fieldNotes(part) {
  const notes = [];
  if (part.closing !== null && part.closing !== undefined) notes.push(S.ends(part.closing));
  if (part.choices) notes.push(Object.entries(part.choices).sort(([, a], [, b]) => b - a).map(([name, share]) => `${name} ${S.percent(share)}`).join(", "));
  if (part.note) notes.push(part.note);
  else if (part.present === false) notes.push(S.missing);
  for (const flag of part.flags ?? []) notes.push(flag.message ?? flag);
  return notes.join(" · ");
}

const FieldNotes = ({ part }) => html`<span class="dim" dir="auto">${fieldNotes(part)}</span>`;

const Confidence = ({ part }) => {
  if (part.confidence === null || part.confidence === undefined) return "–";
  const kind = level(part.confidence);
  return html`<span class=${`mark ${kind}`}><span class="visually-hidden">${kind === "weak" ? S.weak : kind === "some" ? S.some : ""}</span>${S.digits(part.confidence)}</span>`;
};

function FieldTable({ parts }) {
  const fields = parts.filter((part) => part.path !== null && part.path !== undefined).sort((a, b) => (a.confidence ?? -1) - (b.confidence ?? -1));
  if (!fields.length) return null;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${S.fields}><table>
    <caption>${S.fields}</caption>
    <thead><tr>${S.fieldColumns.map((name, i) => html`<th scope="col" class=${i === 2 ? "number" : ""}>${name}</th>`)}</tr></thead>
    <tbody>
      ${fields.map(
        (part) => html`<tr>
          <th scope="row" dir="auto">${part.path}</th><td dir="auto">${part.text}</td>
          <td class="number"><${Confidence} part=${part} /></td><td><${FieldNotes} part=${part} /></td>
        </tr>`,
      )}
    </tbody>
  </table></div>`;
}

// A switch that this browser remembers, where the page may keep anything at all.
function useRemembered(key) {
  const [on, setOn] = useState(() => {
    try {
      return localStorage.getItem(key) === "on";
    } catch {
      return false;
    }
  });
  useEffect(() => {
    try {
      localStorage.setItem(key, on ? "on" : "off");
    } catch {
      // a static file in a browser that keeps nothing for files
    }
  }, [on]);
  return [on, setOn];
}

// A doubtful stretch of an answer in words: "In doubt: “Istanbul” (60%); also likely: “Ankara” 17%".
function doubtOf(answer, part) {
  const others = (rivals(answer, part)[0] ?? []).filter((one) => !one.chosen && !one.counted && one.text.trim()).slice(0, 2);
  return S.copiedDoubt(part.text, part.confidence, others);
}

// Why an answer is to be checked: its sentence if it came with one, else its most doubtful stretch, else its number.
export function reasonOf(answer) {
  if (answer.doubt) return answer.doubt;
  const [worst] = weakestOf(answer);
  if (worst) return doubtOf(answer, worst);
  const confidence = confidenceOf(answer);
  return typeof confidence === "number" ? S.confidenceSaid(confidence)[0] : "";
}

// The answer as plain text, with a line for each doubtful stretch.
function withDoubts(answer, question) {
  const lines = weakestOf(answer).map((part) => doubtOf(answer, part));
  return [question, answer.text.trim(), ...lines].filter(Boolean).join("\n\n").replaceAll("\u00a0", " ");
}

// An image that was asked about; a click shows it in its own size.
function Scan({ source }) {
  const [whole, setWhole] = useState(false);
  return html`<div class="scan"><button aria-pressed=${whole} onClick=${() => setWhole(!whole)}><img src=${source} alt=${S.scan} /></button></div>`;
}

let panels = 0;
// `guaranteed`: the guarantee stands elsewhere on the screen.
export function Card({ answer, question, title, compared, guaranteed }) {
  const [open, setOpen] = useState(null);
  const [numbers, setNumbers] = useRemembered("semtoken.numbers");
  const [all, setAll] = useState(false);
  const [copied, setCopied] = useState("");
  const panel = useMemo(() => `also-${++panels}`, []);
  const card = useRef(null);
  const close = () => {
    card.current?.querySelector('[aria-expanded="true"]')?.focus();
    setOpen(null);
  };
  const part = open === null ? null : stretches(answer, all)[open]?.part;
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(withDoubts(answer, question));
      setCopied(S.copied);
    } catch {
      setCopied(S.notCopied);
    }
  };
  const bounds = intervalOf(answer);
  const doubts = (answer.parts ?? []).filter((one) => one.form_only && level(one.confidence) !== "").length;
  return html`<article class="card" ref=${card} onKeyDown=${(event) => event.key === "Escape" && open !== null && close()}>
    ${title && html`<p class="dim">${title}</p>`}
    ${question && html`<h2 dir="auto">${question}</h2>`}
    ${imagesOf(answer).map((source) => html`<${Scan} source=${source} />`)}
    <${Text} ...${{ answer, numbers, all, open, setOpen, panel }} />
    ${answer.doubt && html`<p><strong dir="auto">${answer.doubt}</strong></p>`}
    ${answer.truncated && html`<p class="note">${S.truncated}</p>`}
    ${!compared && answer.asked_method && html`<${Asked} answer=${answer} />`}
    <${Verdict} ...${{ answer, compared, guaranteed }} />
    ${!compared && !answer.asked_method && bounds && bounds[1] - bounds[0] > 0.001 && html`<p class="note">${S.bounds}</p>`}
    ${(Array.isArray(answer.flags) ? answer.flags : []).map((flag) => html`<p class="note">${flag.message}</p>`)}
    ${doubts > 0 && html`<p class="note">${S.leftUnmarked(doubts)}</p>`}
    ${part && html`<${Also} ...${{ answer, part, id: panel, close }} />`}
    ${answer.parts && !answer.marks && answer.parts.length > 1 && html`<${FieldTable} parts=${answer.parts} />`}
    <div class="row">
      <button onClick=${copy}>${copied || S.copy}</button>
      <label><input type="checkbox" checked=${numbers} onChange=${() => setNumbers(!numbers)} /> ${S.numbers}</label>
      <label><input type="checkbox" checked=${all} onChange=${() => { setAll(!all); setOpen(null); }} /> ${S.markAll}</label>
    </div>
    ${answer.tokens?.length > 0 && html`<${Tokens} tokens=${answer.tokens} />`}
  </article>`;
}

// What the marks mean and, where confidences stand without probabilities (`ranks`), what these are not: once in a view.
export const Legend = ({ ranks }) =>
  html`${ranks && html`<p class="note">${S.uncalibrated}</p>`}<p class="note">${S.legendLead}${S.legend.map(([kind, text]) => html`<span class=${`mark ${kind}`}>${kind ? text : ""}</span>${kind ? " " : text} `)}</p>`;
