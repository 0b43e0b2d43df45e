// The JSON fields of all answers of a file, the most doubtful first, whatever answer they are in.
import { html, useMemo } from "./preact.js";
import { S } from "./strings.js";
import { fieldNotes } from "./answer.js";
import { File } from "./file.js";
import { promptOf } from "./helpers.js";

const ofFields = (row) => (row.parts ?? []).filter((part) => part.path !== null && part.path !== undefined);
export const fieldsOf = (rows) => rows.flatMap(ofFields);

// A field as a row of the file view, whose card is the answer that it stands in. The names are those of `check --schema`.
function fieldRow(row, part, number) {
  const document = String(row.id ?? number + 1);
  const probability_correct = part.probability_correct === undefined || part.probability_correct === null ? {} : { calibration: { probability_correct: part.probability_correct } };
  const missing = part.present === false;
  const [rival, share] = part.rival ? [part.rival, part.rival_probability] : (part.rivals?.[0] ?? []);
  const doubt = rival ? S.alsoLikely(rival, share) : undefined;
  const notes = fieldNotes(part);
  const shown = `${S.fieldConfidence(part).replace(/\.$/, "")}${notes && ` (${notes})`}.`;
  const { text, tokens, disputes, competing, images } = row;
  return {
    id: `${document}#${part.path}`,
    document,
    path: part.path,
    value: part.text,
    question: S.fieldOf(part.path, document),
    text: missing ? S.missingValue : part.text,
    confidence: part.confidence ?? null,
    risk: -(part.confidence ?? -1), // missing ones come first
    log_confidence: part.log_confidence ?? (part.confidence ? Math.log(part.confidence) : null),
    log_confidence_lower: part.log_confidence_lower ?? null,
    log_confidence_upper: part.log_confidence_upper ?? null,
    signature: [row.signature, "field"].filter(Boolean).join("|"),
    distribution: row.distribution,
    decision: part.decision,
    doubt: S.fieldDoubt({ ...part, rival, rival_probability: share }),
    label: null,
    ...probability_correct,
    card: { text, tokens, disputes, competing, images, parts: missing ? [] : [part], doubt, shown, question: images ? "" : promptOf(row) },
  };
}

// The rows of a document's fields, made once: they hold the labels.
const rowsOf = (row, number) => (row.fields ??= ofFields(row).map((part) => fieldRow(row, part, number)));

export function Fields({ rows, setRows, calibrator, unscored }) {
  const fields = useMemo(() => rows.flatMap(rowsOf), [rows]);
  const decided = fields.some((field) => field.decision);
  const guarantee = fields.some((field) => field.calibration) ? calibrator : null; // that of whole answers says nothing of fields
  const doubtful = fields.filter((field) => field.decision === "check").length;
  const clean = rows.filter((row, number) => rowsOf(row, number).every((field) => field.decision !== "check")).length;
  return html`${decided && html`<p class="note">${S.documentsClean(clean, rows.length)}</p>`}
    <${File} rows=${fields} setRows=${setRows} calibrator=${guarantee} unscored=${unscored} first=${decided ? doubtful : undefined} counted=${S.fieldRows} about=${S.fieldColumn} />`;
}
