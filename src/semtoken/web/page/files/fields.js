// The JSON fields of all answers of a file, the most doubtful first, whatever answer they are in.
import { html, useMemo, useState } from "./preact.js";
import { S } from "./strings.js";
import { Confidence, FieldNotes } from "./answer.js";
import { PAGE_ROWS, Pages, promptOf } from "./helpers.js";

export const fieldsOf = (rows) => rows.flatMap((row) => (row.parts ?? []).filter((part) => part.path !== null && part.path !== undefined).map((part) => ({ row, part })));

export function Fields({ rows }) {
  const [page, setPage] = useState(0);
  const [cut, setCut] = useState(0.85);
  const fields = useMemo(() => fieldsOf(rows).sort((a, b) => (a.part.confidence ?? -1) - (b.part.confidence ?? -1)), [rows]);
  const above = fields.filter(({ part }) => (part.confidence ?? -1) >= cut).length;
  const whole = rows.filter((row) => {
    const own = fieldsOf([row]);
    return own.length > 0 && own.every(({ part }) => (part.confidence ?? -1) >= cut);
  }).length;
  return html`<div class="card">
      <label for="field-cut">${S.fieldCut(S.percent(cut))}</label>
      <input id="field-cut" type="range" min="0" max="1" step="0.01" value=${cut} onInput=${(event) => setCut(Number(event.target.value))} />
      <p role="status"><strong>${S.fieldsAbove(above, fields.length)}</strong>${S.documentsAbove(whole, rows.length)}</p>
      <p class="note">${S.fieldNote}</p>
    </div>
    <div class="scroll" tabindex="0" role="region" aria-label=${S.views.fields}>
      <table>
        <caption>${S.fields}</caption>
        <thead><tr>${S.allFieldColumns.map((name, i) => html`<th scope="col" class=${i === 2 ? "number" : ""}>${name}</th>`)}</tr></thead>
        <tbody>
          ${fields.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS).map(
            ({ row, part }) => html`<tr>
              <th scope="row" dir="auto">${part.path}</th><td dir="auto">${part.text}</td>
              <td class="number"><${Confidence} part=${part} /></td><td><${FieldNotes} part=${part} /></td>
              <td dir="auto" class="dim">${promptOf(row).slice(0, 120)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <${Pages} ...${{ page, setPage, count: fields.length }} />`;
}
