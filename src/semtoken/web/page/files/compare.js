// Two answers side by side: two wordings of a question, or two files of answers to the same questions.
// Scores of two models are not on one scale, so each answer is shown with its probability_correct, or its place in its own file.
import { html, useMemo, useState } from "./preact.js";
import { S } from "./strings.js";
import { ask, sentence } from "./ask.js";
import { Card, Legend } from "./answer.js";
import { probabilityOf, probabilityText, Choose, PAGE_ROWS, Pages, parseLines, promptOf, riskOf } from "./helpers.js";

const plain = (text) => text.normalize("NFKC").toLowerCase().replace(/[\p{P}\p{S}\s]+/gu, " ").trim();
const same = (a, b) => plain(a.text) === plain(b.text);

// The share of a file's answers that score better than each of them.
function places(rows) {
  const risks = Float64Array.from(rows, riskOf).sort();
  const below = (value) => {
    let low = 0;
    let high = risks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (risks[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low / risks.length;
  };
  return new Map(rows.map((row) => [row, below(riskOf(row))]));
}

function pairsOf(first, second) {
  const [a, b] = [places(first.rows), places(second.rows)];
  const others = new Map(second.rows.map((row) => [promptOf(row), row]));
  const pairs = [];
  for (const row of first.rows) {
    const other = others.get(promptOf(row));
    if (other) pairs.push({ question: promptOf(row), one: row, two: other, places: [a.get(row), b.get(other)], differ: !same(row, other) });
  }
  return pairs.sort((x, y) => y.differ - x.differ || Math.max(...y.places) - Math.max(...x.places));
}

const Standing = ({ row, place }) => (probabilityOf(row) === null ? S.place(place) : probabilityText(row));

function Pairs({ files }) {
  const [page, setPage] = useState(0);
  const [current, setCurrent] = useState(0);
  const [onlyDiffering, setOnly] = useState(false);
  const pairs = useMemo(() => pairsOf(files[0], files[1]), [files]);
  const differing = pairs.filter((pair) => pair.differ).length;
  const listed = onlyDiffering ? pairs.filter((pair) => pair.differ) : pairs;
  const visible = listed.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS);
  if (!pairs.length) return html`<p role="alert" class="card">${S.noPairs}</p>`;
  return html`<p role="status"><strong>${S.differ(differing, pairs.length)}</strong></p>
    <p class="note">${S.scales}</p>
    <label><input type="checkbox" checked=${onlyDiffering} onChange=${() => { setOnly(!onlyDiffering); setPage(0); setCurrent(0); }} /> ${S.onlyDiffering}</label>
    <div class="scroll" tabindex="0" role="region" aria-label=${S.views.compare}>
      <table class="pairs">
        <caption>${S.pairs}</caption>
        <thead><tr>
          <th scope="col">${S.columns.prompt}</th>
          ${files.map((file) => html`<th scope="col" dir="auto">${file.name}</th><th scope="col" class="number">${probabilityOf(file.rows[0]) === null ? S.standing : S.columns.probability_correct}</th>`)}
          <th scope="col">${S.sameWords}</th>
        </tr></thead>
        <tbody>
          ${visible.map(
            (one, i) => html`<tr aria-current=${i === current} onClick=${() => setCurrent(i)}>
              <th scope="row" dir="auto"><button class="link" onClick=${() => setCurrent(i)}>${one.question}</button></th>
              ${[one.one, one.two].map((row, at) => html`<td dir="auto" data-name=${`${files[at].name}:`}>${row.text}</td><td class="number"><${Standing} row=${row} place=${one.places[at]} /></td>`)}
              <td data-name=${S.sameWords}>${one.differ ? S.no : S.yes}</td>
            </tr>
            ${i === current && html`<tr class="inside"><td colspan="6"><div class="beside detail" key=${one.question}>
              ${[one.one, one.two].map((row, at) => html`<${Card} answer=${row} question=${one.question} title=${files[at].name} compared />`)}
            </div></td></tr>`}`,
          )}
        </tbody>
      </table>
    </div>
    <${Pages} page=${page} setPage=${(to) => { setPage(to); setCurrent(0); }} count=${listed.length} />
    <${Legend} />`;
}

function Wordings({ info, server }) {
  const [texts, setTexts] = useState(["", ""]);
  const [found, setFound] = useState(null);
  const [running, setRunning] = useState(false);
  const [error, setError] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    if (running || !texts.every((text) => text.trim())) return;
    setRunning(true);
    setError("");
    try {
      const options = { info, model: info?.upstream ? server.model : info?.model, key: server.key };
      setFound([{ question: texts[0], answer: await ask(texts[0], options) }, { question: texts[1], answer: await ask(texts[1], options) }]);
    } catch (problem) {
      setError(sentence(problem));
    }
    setRunning(false);
  };
  return html`<form class="card" onSubmit=${submit}>
      <p>${S.wordingsWhy}</p>
      ${texts.map(
        (text, i) => html`<label class="wide">${S.wording(i + 1)} <input dir="auto" value=${text} onInput=${(e) => setTexts(texts.map((old, at) => (at === i ? e.target.value : old)))} /></label>`,
      )}
      <button class="main" disabled=${running}>${running ? S.asking : S.askBoth}</button>
    </form>
    ${error && html`<p role="alert" class="card">${error}</p>`}
    ${found && html`<p role="status"><strong>${same(found[0].answer, found[1].answer) ? S.bothSame : S.bothDiffer}</strong></p>
      <div class="beside">${found.map((one) => html`<${Card} key=${one.question} ...${one} compared />`)}</div><${Legend} />`}`;
}

export function Compare({ info, server, files, setFiles }) {
  const [problem, setProblem] = useState("");
  const open = (at) => async (chosen) => {
    if (!chosen?.length) return;
    try {
      const file = { name: chosen[0].name, rows: parseLines(await chosen[0].text()) };
      setFiles([0, 1].map((i) => (i === at ? file : files[i])));
      setProblem("");
    } catch (error) {
      setProblem(`${chosen[0].name}: ${error.message}`);
    }
  };
  const both = files[0] && files[1];
  const choosers = html`<div class="beside">${[0, 1].map((at) => html`<${Choose} label=${files[at] ? S.chosenFile(files[at].name) : S.chooseFile(at + 1)} onFile=${open(at)} />`)}</div>`;
  return html`${info?.ask && html`<${Wordings} info=${info} server=${server} />`}
    ${both && html`<${Pairs} files=${files} />`}
    ${problem && html`<p role="alert" class="card">${problem}</p>`}
    ${both ? html`<details><summary>${S.others}</summary>${choosers}</details>` : choosers}`;
}
