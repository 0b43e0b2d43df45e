// A file of scored answers: the most doubtful first, what is doubtful beside each, keys and buttons for labels.
import { html, useEffect, useMemo, useRef, useState } from "./preact.js";
import { S } from "./strings.js";
import { Card, Legend, reasonOf } from "./answer.js";
import { Probability, probabilityOf, Choose, PAGE_ROWS, Pages, parseLines, promptOf, riskOf, save } from "./helpers.js";

const FIRST_LOOK = 20; // so many of the most doubtful are to be checked, until the reader says otherwise
const WIDE = "(min-width: 60rem)"; // room for what is doubtful beside the list

// Ascending by a key; rows of equal keys keep their order.
function sortedBy(rows, key) {
  const withKeys = rows.map((row) => [key(row), row]);
  withKeys.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return withKeys.map(([, row]) => row);
}

// Numbers in (0, 1) that look random and are the same each time: a row keeps its place in the random order.
function* lots() {
  for (let i = 1; ; i += 1) {
    const x = Math.sin(12.9898 * i) * 43758.5453;
    yield x - Math.floor(x);
  }
}

// The name of a field, the same in all items of a list: /items/0/total and /items/1/total are one.
const fieldOf = (row) => String(row.path ?? "").replace(/\/\d+(?=\/|$)/g, "/*");
const documentOf = (row) => String(row.document ?? "");
const GROUPS = { field: fieldOf, document: documentOf };
const FILTERS = { all: () => true, open: (row) => row.label === null, right: (row) => row.label === true, wrong: (row) => row.label === false };
const searched = (row) => `${promptOf(row)}\n${row.text}\n${row.path ?? ""}\n${row.document ?? ""}`.toLowerCase();

// Whether the window is wide, as it changes.
function useWide() {
  const query = useMemo(() => matchMedia(WIDE), []);
  const [wide, setWide] = useState(query.matches);
  useEffect(() => {
    const changed = () => setWide(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return wide;
}

// How many to check: a number of answers, the most doubtful first, since scores of sentences lie too close together.
function Cut({ ranked, check, setCheck, calibrator }) {
  const accepted = ranked.slice(check);
  const probabilities = accepted.map(probabilityOf).filter((probability_correct) => probability_correct !== null);
  const labeled = accepted.filter((row) => row.label !== null);
  // Rounded up: a stricter cut than the one with the guarantee, never a looser one.
  const guaranteed = calibrator?.threshold ? Math.ceil(100 * calibrator.threshold.probability_correct) / 100 : null;
  const keeps = guaranteed === null ? 0 : ranked.filter((row) => (probabilityOf(row) ?? -1) < guaranteed).length;
  // Equal scores stand in the order of the file; a cut through them is said.
  const last = check > 0 && check < ranked.length ? riskOf(ranked[check - 1]) : null;
  const alike = last !== null && riskOf(ranked[check]) === last ? ranked.filter((row) => riskOf(row) === last).length : 0;
  const wrong = probabilities.reduce((sum, probability_correct) => sum + 1 - probability_correct, 0);
  return html`<div class="card">
    <label for="cut">${S.cut(check, ranked.length)}</label>
    <input id="cut" type="range" min="0" max=${ranked.length} step="1" value=${check} onInput=${(event) => setCheck(Number(event.target.value))} />
    <p role="status">
      <strong>${S.accepts(accepted.length)}</strong>${probabilities.length === accepted.length && probabilities.length ? S.expectedWrong(wrong < 10 ? wrong.toFixed(1) : Math.round(wrong)) : ""}.
      ${labeled.length > 0 ? " " + S.labeledWrong(labeled.length, labeled.filter((row) => !row.label).length) : ""}
    </p>
    ${alike > 0 && html`<p class="note">${S.alike(alike)}</p>`}
    ${guaranteed !== null && html`<p><button onClick=${() => setCheck(keeps)}>${S.useGuaranteed(S.probability(guaranteed))}</button> <span class="note">${calibrator.guarantee}</span></p>`}
    ${calibrator && !calibrator.threshold && calibrator.guarantee && html`<p class="note">${calibrator.guarantee}</p>`}
    <p class="note">${S.sureWrong}</p>
  </div>`;
}

function Detail({ row, label, guaranteed }) {
  return html`<div class="detail">
    <${Card} key=${row.place} answer=${row.card ?? row} title=${row.card && row.question} question=${row.card ? row.card.question : promptOf(row)} guaranteed=${guaranteed} />
    <div class="row thumbs" role="group" aria-label=${S.columns.label}>
      <button aria-pressed=${row.label === true} onClick=${() => label(row, row.label === true ? null : true)}>${S.right} <span class="keys">(y)</span></button>
      <button aria-pressed=${row.label === false} onClick=${() => label(row, row.label === false ? null : false)}>${S.wrong} <span class="keys">(n)</span></button>
    </div>
  </div>`;
}

const SIGNS = { true: "✓", false: "✗" };

function Row({ row, probability_correct, why, selected, select, detail }) {
  const columns = probability_correct ? 4 : 3;
  const reason = why ? reasonOf(row) : "";
  return html`<tr aria-current=${selected} onClick=${select}>
      <td class="number">${row.place}</td>
      ${probability_correct && html`<td class="number"><${Probability} row=${row} /></td>`}
      <td><div class="dim clamp" dir="auto">${promptOf(row)}</div><div class="clamp" dir="auto">${row.text}</div>${reason && html`<div class="why" dir="auto">${reason}</div>`}</td>
      <td class="label">${row.label === null ? "" : html`<span aria-hidden="true">${SIGNS[row.label]}</span> ${row.label ? S.right : S.wrong}`}</td>
    </tr>
    ${detail && html`<tr class="inside"><td colspan=${columns}>${detail}</td></tr>`}`;
}

// `first`: so many are to be checked at first; `counted` and `about`: what the rows are called.
export function File({ rows, setRows, calibrator, by, unscored = [], first = FIRST_LOOK, counted = S.rows, about = S.columns.text }) {
  const [problem, setProblem] = useState("");
  const [check, setCheck] = useState(Math.min(first, rows.length));
  const [order, setOrder] = useState({ key: "place", down: false });
  const [find, setFind] = useState("");
  const [filter, setFilter] = useState("all");
  const [current, setCurrent] = useState(0); // place in the list, on whatever page that is
  const list = useRef(null);
  const byKey = useRef(false);
  const [, redraw] = useState(0);
  const wide = useWide();
  const probability_correct = rows.some((row) => probabilityOf(row) !== null);
  const ranked = useMemo(() => {
    const found = sortedBy(rows, (row) => -riskOf(row));
    found.forEach((row, i) => (row.place = i + 1));
    const drawn = lots();
    rows.forEach((row) => (row.lot = drawn.next().value));
    return found;
  }, [rows]);
  const sorted = useMemo(() => {
    const keys = { place: (row) => row.place, random: (row) => row.lot, probability_correct: (row) => probabilityOf(row) ?? -1, text: (row) => `${promptOf(row)}\n${row.text}`, ...GROUPS };
    const words = find.toLowerCase().trim();
    const kept = ranked.filter((row) => FILTERS[filter](row) && (!words || searched(row).includes(words)));
    const found = sortedBy(kept, keys[order.key]);
    return order.down ? found.reverse() : found;
  }, [ranked, order, find, filter]); // not the labels: a row stays where it is while it gets one
  useEffect(() => {
    if (byKey.current) list.current?.querySelector('tr[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
    byKey.current = false;
  }, [current]);
  const open = async (files) => {
    if (!files?.length) return;
    try {
      const found = parseLines(await files[0].text());
      setRows(found);
      setCheck(Math.min(FIRST_LOOK, found.length));
      setProblem("");
      setFind("");
      setFilter("all");
      setCurrent(0);
    } catch (error) {
      setProblem(error.message);
    }
  };
  const page = Math.floor(current / PAGE_ROWS);
  const start = page * PAGE_ROWS;
  const visible = sorted.slice(start, start + PAGE_ROWS);
  const label = (row, value) => {
    row.label = value;
    redraw((n) => n + 1);
  };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const value = { y: true, n: false, u: null }[event.key];
    if (step) {
      event.preventDefault();
      byKey.current = true;
      setCurrent((now) => Math.min(Math.max(now + step, 0), sorted.length - 1)); // keys may come faster than the page
    } else if (value !== undefined && sorted[current] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      label(sorted[current], value);
    }
  };
  const line = ({ place, lot, marks, risk, label: given, card, fields, doubt, images, ...row }) => JSON.stringify({ ...row, ...(given === null ? {} : { correct: given }) });
  const header = (key, text, number) => {
    const active = order.key === key;
    const direction = active ? (order.down ? "descending" : "ascending") : "none";
    return html`<th scope="col" class=${number ? "number" : ""} aria-sort=${direction}>
      <button onClick=${() => { setOrder({ key, down: active && !order.down }); setCurrent(0); }}>${text}${active ? (order.down ? "\u00a0▼" : "\u00a0▲") : ""}</button>
    </th>`;
  };
  const labeled = rows.filter((row) => row.label !== null).length;
  const orders = ["place", "random", ...(rows.some((row) => row.path) ? ["field", "document"] : [])];
  const group = GROUPS[order.key];
  const selected = sorted[current];
  const detail = selected && html`<${Detail} ...${{ row: selected, label, guaranteed: Boolean(calibrator?.guarantee) }} />`;
  if (!rows.length) return html`<${Choose} label=${S.drop} onFile=${open} />${problem && html`<p role="alert" class="card">${problem}</p>`}`;
  return html`${problem && html`<p role="alert" class="card">${problem}</p>`}
    <${Cut} ...${{ ranked, check, setCheck, calibrator }} />
    <div class="row">
      <label>${S.find} <input type="search" value=${find} onInput=${(event) => { setFind(event.target.value); setCurrent(0); }} /></label>
      <label>${S.show} <select value=${filter} onChange=${(event) => { setFilter(event.target.value); setCurrent(0); }}>
        ${Object.keys(FILTERS).map((key) => html`<option value=${key}>${S.filters[key]}</option>`)}
      </select></label>
      <label>${S.order} <select value=${orders.includes(order.key) ? order.key : ""} onChange=${(event) => { setOrder({ key: event.target.value, down: false }); setCurrent(0); }}>
        ${!orders.includes(order.key) && html`<option value="">${S.orders.other}</option>`}
        ${orders.map((key) => html`<option value=${key}>${S.orders[key]}</option>`)}
      </select></label>
    </div>
    <p class="note keys">${S.keys}</p>
    <div class=${wide ? "columns" : ""} onKeyDown=${onKey}>
      <div>
        <div class="scroll" tabindex="0" role="region" aria-label=${S.views.file}>
          <table>
            <caption>${counted(rows.length, by)}</caption>
            <thead><tr>
              ${header("place", S.columns.place, true)}${probability_correct && header("probability_correct", S.columns.probability_correct, true)}${header("text", about)}
              <th scope="col">${S.columns.label}</th>
            </tr></thead>
            <tbody ref=${list}>
              ${visible.map((row, i) => html`${group && (i === 0 || group(row) !== group(visible[i - 1])) && html`<tr class="group"><th scope="rowgroup" colspan=${probability_correct ? 4 : 3} dir="auto">${group(row)}</th></tr>`}<${Row} ...${{ row, probability_correct, why: row.place <= check, selected: start + i === current, select: () => setCurrent(start + i), detail: start + i === current && !wide && detail }} />`)}
            </tbody>
          </table>
        </div>
        <${Pages} page=${page} setPage=${(to) => setCurrent(to * PAGE_ROWS)} count=${sorted.length} />
      </div>
      ${wide && html`<div class="beside-list">${detail}</div>`}
    </div>
    <${Legend} ranks=${!probability_correct} />
    ${unscored.length > 0 && html`<details><summary>${S.unscored(unscored.length)}</summary>
      <ul>${unscored.map(([where, reason]) => html`<li><strong dir="auto">${where}</strong>: <span dir="auto">${reason}</span></li>`)}</ul>
    </details>`}
    <div class="row">
      <button disabled=${labeled === 0} onClick=${() => save("labeled.jsonl", ranked.filter((row) => row.label !== null).map(line))}>${S.exportLabels}</button>
      <button onClick=${() => save("accepted.jsonl", ranked.slice(check).map(line))}>${S.exportAccepted}</button>
      <button onClick=${() => save("rest.jsonl", ranked.slice(0, check).map(line))}>${S.exportRest}</button>
    </div>
    ${labeled > 0 && html`<p class="note">${S.labelsNext(labeled)}</p>`}
    <details><summary>${S.another}</summary><${Choose} label=${S.drop} onFile=${open} /></details>`;
}
