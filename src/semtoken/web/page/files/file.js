// A file of scored answers: riskiest first, a slider for the cut, keys for labels, and what to save.
import { html, useMemo, useState } from "./preact.js";
import { S } from "./strings.js";
import { Card, Legend } from "./answer.js";
import { chanceOf, chanceText, Choose, PAGE_ROWS, Pages, parseLines, promptOf, riskOf, save, shown } from "./helpers.js";

const accepts = (row, cut, chance) => (chance ? (chanceOf(row) ?? -1) >= cut : row.uncertainty <= cut);

function Slider({ rows, cut, setCut, calibrator }) {
  const chance = chanceOf(rows[0] ?? {}) !== null;
  const accepted = rows.filter((row) => accepts(row, cut, chance));
  const wrong = accepted.reduce((sum, row) => sum + (1 - (chanceOf(row) ?? 0)), 0);
  const labelled = accepted.filter((row) => row.label !== null);
  const value = chance ? S.percent(cut) : cut.toFixed(2);
  // Rounded up: a stricter cut than the one with the promise, never a looser one.
  const promised = chance && calibrator?.threshold ? Math.ceil(100 * calibrator.threshold.chance) / 100 : null;
  return html`<div class="card">
    <label for="cut">${S.cut(value, chance)}</label>
    <input id="cut" type="range" min="0" max="1" step="0.01" list=${promised === null ? undefined : "promised"} value=${cut} onInput=${(event) => setCut(Number(event.target.value))} />
    ${promised !== null && html`<datalist id="promised"><option value=${promised}></option></datalist>`}
    <p role="status">
      <strong>${S.accepts(accepted.length, rows.length)}</strong>${chance && accepted.length ? S.expectedWrong(wrong.toFixed(1)) : ""}.
      ${labelled.length > 0 ? " " + S.labelledWrong(labelled.length, labelled.filter((row) => !row.label).length) : ""}
    </p>
    ${promised !== null && html`<p><button onClick=${() => setCut(promised)}>${S.usePromised(S.percent(promised))}</button> <span class="note">${calibrator.promise}</span></p>`}
    ${calibrator && !calibrator.threshold && calibrator.promise && html`<p class="note">${calibrator.promise}</p>`}
    <p class="note">${S.sureWrong}${chance ? "" : ` ${S.noChances}`}</p>
  </div>`;
}

export function File({ rows, setRows, calibrator }) {
  const [problem, setProblem] = useState("");
  const [cut, setCut] = useState(0.5);
  const [sort, setSort] = useState({ key: "risk", down: true });
  const [page, setPage] = useState(0);
  const [current, setCurrent] = useState(0);
  const [, redraw] = useState(0);
  const chance = rows.length > 0 && chanceOf(rows[0]) !== null;
  const sorted = useMemo(() => {
    const keys = { risk: riskOf, chance: (row) => -(chanceOf(row) ?? -1) };
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
  const line = (row) => JSON.stringify({ ...row, label: undefined, ...(row.label === null ? {} : { correct: row.label }) });
  const header = (key, text, number) => {
    const active = sort.key === key;
    const direction = active ? (sort.down ? "descending" : "ascending") : "none";
    return html`<th scope="col" class=${number ? "number" : ""} aria-sort=${direction}>
      <button onClick=${() => { setSort({ key, down: active ? !sort.down : true }); setPage(0); }}>${text}${active ? (sort.down ? " ▼" : " ▲") : ""}</button>
    </th>`;
  };
  const labelled = rows.filter((row) => row.label !== null).length;
  const selected = visible[current];
  return html`<${Choose} label=${S.drop} onFile=${open} />
    ${problem && html`<p role="alert" class="card">${problem}</p>`}
    ${rows.length > 0 &&
    html`<${Slider} ...${{ rows, cut, setCut, calibrator }} />
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
                ${chance && html`<td class="number">${chanceText(row)}</td>`}
                <td dir="auto">${promptOf(row)}</td>
                <td dir="auto">${row.text}</td>
                <td>${row.label === null ? "" : row.label ? S.right : S.wrong}</td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>
      <${Pages} page=${page} setPage=${(to) => { setPage(to); setCurrent(0); }} count=${sorted.length} />
      ${selected && html`<div class="row" role="group" aria-label=${S.columns.label}>
          <button aria-pressed=${selected.label === true} onClick=${() => label(selected, true)}>${S.right} (y)</button>
          <button aria-pressed=${selected.label === false} onClick=${() => label(selected, false)}>${S.wrong} (n)</button>
        </div>
        <${Card} key=${`${page}-${current}-${sort.key}-${sort.down}-${rows.length}`} answer=${selected} question=${promptOf(selected)} />
        <${Legend} />`}
      <div class="row">
        <button disabled=${labelled === 0} onClick=${() => save("labelled.jsonl", sorted.filter((row) => row.label !== null).map(line))}>${S.exportLabels}</button>
        <button onClick=${() => save("accepted.jsonl", sorted.filter((row) => accepts(row, cut, chance)).map(line))}>${S.exportAccepted}</button>
        <button onClick=${() => save("rest.jsonl", sorted.filter((row) => !accepts(row, cut, chance)).map(line))}>${S.exportRest}</button>
      </div>
      ${labelled > 0 && html`<p class="note">${S.labelsNext(labelled)}</p>`}`}`;
}
