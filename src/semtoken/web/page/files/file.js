// A file of scored answers: the most doubtful first, what is doubtful beside each, keys and buttons for labels.
import { html, useEffect, useMemo, useState } from "./preact.js";
import { S } from "./strings.js";
import { Card, Legend, reasonOf } from "./answer.js";
import { Chance, chanceOf, Choose, PAGE_ROWS, Pages, parseLines, promptOf, riskOf, save, unbroken } from "./helpers.js";

const FIRST_LOOK = 20; // so many of the most doubtful are to be checked, until the reader says otherwise
const WIDE = "(min-width: 60rem)"; // room for what is doubtful beside the list

// Ascending by a key; rows of equal keys keep their order.
function sortedBy(rows, key) {
  const withKeys = rows.map((row) => [key(row), row]);
  withKeys.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return withKeys.map(([, row]) => row);
}

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
  const chances = accepted.map(chanceOf).filter((chance) => chance !== null);
  const labelled = accepted.filter((row) => row.label !== null);
  // Rounded up: a stricter cut than the one with the promise, never a looser one.
  const promised = calibrator?.threshold ? Math.ceil(100 * calibrator.threshold.chance) / 100 : null;
  const keeps = promised === null ? 0 : ranked.filter((row) => (chanceOf(row) ?? -1) < promised).length;
  // Equal scores stand in the order of the file; a cut through them is said.
  const last = check > 0 && check < ranked.length ? riskOf(ranked[check - 1]) : null;
  const alike = last !== null && riskOf(ranked[check]) === last ? ranked.filter((row) => riskOf(row) === last).length : 0;
  const wrong = chances.reduce((sum, chance) => sum + 1 - chance, 0);
  return html`<div class="card">
    <label for="cut">${S.cut(check, ranked.length)}</label>
    <input id="cut" type="range" min="0" max=${ranked.length} step="1" value=${check} onInput=${(event) => setCheck(Number(event.target.value))} />
    <p role="status">
      <strong>${S.accepts(accepted.length)}</strong>${chances.length === accepted.length && chances.length ? S.expectedWrong(wrong < 10 ? wrong.toFixed(1) : Math.round(wrong)) : ""}.
      ${labelled.length > 0 ? " " + S.labelledWrong(labelled.length, labelled.filter((row) => !row.label).length) : ""}
    </p>
    ${alike > 0 && html`<p class="note">${S.alike(alike)}</p>`}
    ${promised !== null && html`<p><button onClick=${() => setCheck(keeps)}>${S.usePromised(S.percent(promised))}</button> <span class="note">${unbroken(calibrator.promise)}</span></p>`}
    ${calibrator && !calibrator.threshold && calibrator.promise && html`<p class="note">${unbroken(calibrator.promise)}</p>`}
    <p class="note">${S.sureWrong}</p>
  </div>`;
}

function Detail({ row, label, promised }) {
  return html`<div class="detail">
    <${Card} key=${row.place} answer=${row.card ?? row} title=${row.card && row.question} question=${row.card ? row.card.question : promptOf(row)} promised=${promised} />
    <div class="row thumbs" role="group" aria-label=${S.columns.label}>
      <button aria-pressed=${row.label === true} onClick=${() => label(row, true)}>${S.right} <span class="keys">(y)</span></button>
      <button aria-pressed=${row.label === false} onClick=${() => label(row, false)}>${S.wrong} <span class="keys">(n)</span></button>
    </div>
  </div>`;
}

const SIGNS = { true: "✓", false: "✗" };

function Row({ row, chance, why, selected, select, detail }) {
  const columns = chance ? 4 : 3;
  const reason = why ? reasonOf(row) : "";
  return html`<tr aria-current=${selected} onClick=${select}>
      <td class="number">${row.place}</td>
      ${chance && html`<td class="number"><${Chance} row=${row} /></td>`}
      <td><div class="dim clamp" dir="auto">${promptOf(row)}</div><div class="clamp" dir="auto">${row.text}</div>${reason && html`<div class="why" dir="auto">${unbroken(reason)}</div>`}</td>
      <td class="label">${row.label === null ? "" : html`<span aria-hidden="true">${SIGNS[row.label]}</span> ${row.label ? S.right : S.wrong}`}</td>
    </tr>
    ${detail && html`<tr class="inside"><td colspan=${columns}>${detail}</td></tr>`}`;
}

// `first`: so many are to be checked at first; `counted` and `about`: what the rows are called.
export function File({ rows, setRows, calibrator, by, unscored = [], first = FIRST_LOOK, counted = S.rows, about = S.columns.text }) {
  const [problem, setProblem] = useState("");
  const [check, setCheck] = useState(Math.min(first, rows.length));
  const [order, setOrder] = useState({ key: "place", down: false });
  const [page, setPage] = useState(0);
  const [current, setCurrent] = useState(0);
  const [, redraw] = useState(0);
  const wide = useWide();
  const chance = rows.some((row) => chanceOf(row) !== null);
  const ranked = useMemo(() => {
    const found = sortedBy(rows, (row) => -riskOf(row));
    found.forEach((row, i) => (row.place = i + 1));
    return found;
  }, [rows]);
  const sorted = useMemo(() => {
    const keys = { place: (row) => row.place, chance: (row) => chanceOf(row) ?? -1, text: (row) => `${promptOf(row)}\n${row.text}` };
    const found = sortedBy(ranked, keys[order.key]);
    return order.down ? found.reverse() : found;
  }, [ranked, order]);
  const open = async (files) => {
    if (!files?.length) return;
    try {
      const found = parseLines(await files[0].text());
      setRows(found);
      setCheck(Math.min(FIRST_LOOK, found.length));
      setProblem("");
      setPage(0);
      setCurrent(0);
    } catch (error) {
      setProblem(error.message);
    }
  };
  const visible = sorted.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS);
  const label = (row, value) => {
    row.label = row.label === value ? null : value;
    redraw((n) => n + 1);
  };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const value = { y: true, n: false }[event.key];
    if (step) {
      event.preventDefault();
      setCurrent(Math.min(Math.max(current + step, 0), visible.length - 1));
    } else if (value !== undefined && visible[current] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      label(visible[current], value);
    }
  };
  const line = ({ place, marks, risk, label: given, card, fields, doubt, images, ...row }) => JSON.stringify({ ...row, ...(given === null ? {} : { correct: given }) });
  const header = (key, text, number) => {
    const active = order.key === key;
    const direction = active ? (order.down ? "descending" : "ascending") : "none";
    return html`<th scope="col" class=${number ? "number" : ""} aria-sort=${direction}>
      <button onClick=${() => { setOrder({ key, down: active && !order.down }); setPage(0); setCurrent(0); }}>${text}${active ? (order.down ? "\u00a0▼" : "\u00a0▲") : ""}</button>
    </th>`;
  };
  const labelled = rows.filter((row) => row.label !== null).length;
  const selected = visible[current];
  const detail = selected && html`<${Detail} ...${{ row: selected, label, promised: Boolean(calibrator?.promise) }} />`;
  if (!rows.length) return html`<${Choose} label=${S.drop} onFile=${open} />${problem && html`<p role="alert" class="card">${problem}</p>`}`;
  return html`${problem && html`<p role="alert" class="card">${problem}</p>`}
    <${Cut} ...${{ ranked, check, setCheck, calibrator }} />
    <p class="note keys">${S.keys}</p>
    <div class=${wide ? "columns" : ""} onKeyDown=${onKey}>
      <div>
        <div class="scroll" tabindex="0" role="region" aria-label=${S.views.file}>
          <table>
            <caption>${counted(rows.length, by)}</caption>
            <thead><tr>
              ${header("place", S.columns.place, true)}${chance && header("chance", S.columns.chance, true)}${header("text", about)}
              <th scope="col">${S.columns.label}</th>
            </tr></thead>
            <tbody>
              ${visible.map((row, i) => html`<${Row} ...${{ row, chance, why: row.place <= check, selected: i === current, select: () => setCurrent(i), detail: i === current && !wide && detail }} />`)}
            </tbody>
          </table>
        </div>
        <${Pages} page=${page} setPage=${(to) => { setPage(to); setCurrent(0); }} count=${sorted.length} />
      </div>
      ${wide && html`<div class="beside-list">${detail}</div>`}
    </div>
    <${Legend} ranks=${!chance} />
    ${unscored.length > 0 && html`<details><summary>${S.unscored(unscored.length)}</summary>
      <ul>${unscored.map(([where, reason]) => html`<li><strong dir="auto">${where}</strong>: <span dir="auto">${reason}</span></li>`)}</ul>
    </details>`}
    <div class="row">
      <button disabled=${labelled === 0} onClick=${() => save("labelled.jsonl", ranked.filter((row) => row.label !== null).map(line))}>${S.exportLabels}</button>
      <button onClick=${() => save("accepted.jsonl", ranked.slice(check).map(line))}>${S.exportAccepted}</button>
      <button onClick=${() => save("rest.jsonl", ranked.slice(0, check).map(line))}>${S.exportRest}</button>
    </div>
    ${labelled > 0 && html`<p class="note">${S.labelsNext(labelled)}</p>`}
    <details><summary>${S.another}</summary><${Choose} label=${S.drop} onFile=${open} /></details>`;
}
