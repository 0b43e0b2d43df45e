// Labels for answers of the journal: one answer at a time, by key or thumb. It shows neither how sure the model was nor
// what was decided, which would sway people.
import { html, useEffect, useRef, useState } from "./preact.js";
import { failure, sentence } from "./ask.js";
import { REVIEW } from "./review-strings.js";
import { S } from "./strings.js";

const KEPT = "semtoken.reviewer"; // the name, so that the browser knows it the next day
const FEW = 3; // answers that are left when more are fetched
const QUEUES = ["sample", "doubtful", "disagreement"];
const VALUES = { y: true, n: false, s: null };

const keptName = () => {
  try {
    return localStorage.getItem(KEPT) ?? "";
  } catch {
    return "";
  }
};
const keepName = (name) => {
  try {
    localStorage.setItem(KEPT, name);
  } catch {
    // switched off: the name lives as long as the page
  }
};

let keptToken = ""; // in the memory of this page, which other views do not end

// An answer of the server.
async function asked(path, token, body) {
  const headers = { ...(token ? { authorization: `Bearer ${token}` } : {}), ...(body ? { "content-type": "application/json" } : {}) };
  const response = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  if (!response.ok) throw Object.assign(new Error(await failure(response)), { status: response.status });
  return response.json();
}

function Guaranteed({ report }) {
  if (!report) return null;
  return html`<section class="card" aria-label=${REVIEW.guarantee}>
    <p class=${`guarantee ${report.state}`} role="status">${report.sentence}</p>
    ${report.moved_sentence && html`<p class="note">${report.moved_sentence}</p>`}
    ${report.states_sentence && html`<p class="note">${report.states_sentence}</p>`}
  </section>`;
}

export function Review() {
  const [name, setName] = useState(keptName());
  const [token, setToken] = useState(keptToken);
  const [needsToken, setNeedsToken] = useState(keptToken !== "");
  const [queue, setQueue] = useState("sample");
  const [facts, setFacts] = useState(null);
  const [report, setReport] = useState(null);
  const [problem, setProblem] = useState("");
  const [last, setLast] = useState("");
  const busy = useRef(false);
  const loads = useRef(0); // so that answers which come late, for another person or queue, are not shown
  const panel = useRef(null);
  const failed = (error) => {
    setNeedsToken(needsToken || error.status === 401 || error.status === 403);
    setProblem(sentence(error));
  };
  const look = () => asked("./semtoken/watch", token).then(setReport).catch(failed);
  const load = async (which = queue) => {
    const mine = ++loads.current;
    try {
      const found = await asked(`./semtoken/review?${new URLSearchParams({ reviewer: name, queue: which })}`, token);
      if (mine !== loads.current) return;
      setFacts(found);
      setProblem("");
    } catch (error) {
      if (mine === loads.current) failed(error);
    }
  };
  useEffect(() => { look(); }, []);
  const item = facts?.items[0];
  useEffect(() => {
    if (!panel.current) return;
    if (document.activeElement === document.body) panel.current.focus(); // a button that was pressed may be gone
    if (panel.current.getBoundingClientRect().top < 0) panel.current.scrollIntoView(); // an answer is read from its beginning
  }, [item?.id]);
  const begin = (event) => {
    event.preventDefault();
    keepName(name);
    look();
    load().then(() => panel.current?.focus());
  };
  const change = async (body, notice) => {
    if (busy.current) return;
    busy.current = true;
    const mine = loads.current;
    try {
      const done = await asked("./semtoken/review", token, { reviewer: name, ...body });
      setLast(done.undone === null ? REVIEW.nothingToUndo : notice);
      setProblem("");
      look();
      if (mine !== loads.current) return; // another person's answers, or another queue, are in front by now
      if (body.undo || facts.items.length <= FEW) await load();
      else setFacts({ ...facts, items: facts.items.slice(1), labels: facts.labels + 1 });
    } catch (error) {
      if (error.status === 400 && mine === loads.current) await load(); // the answer was deleted: on with the next one
      failed(error);
    } finally {
      busy.current = false;
    }
  };
  const label = (value) => item && change({ id: item.id, correct: value }, REVIEW.said(value));
  const undo = () => change({ undo: true }, REVIEW.undone);
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT") return;
    if (event.repeat) return; // a key that is held down is one label
    if (event.key in VALUES) label(VALUES[event.key]);
    else if (event.key === "u") undo();
    else return;
    event.preventDefault();
  };
  const choose = (which) => {
    setQueue(which);
    load(which);
  };
  return html`<div class="review" onKeyDown=${onKey}>
    <${Guaranteed} report=${report} />
    ${problem && html`<p role="alert" class="card">${problem}</p>`}
    <form class="row" onSubmit=${begin}>
      <label>${REVIEW.name} <input value=${name} maxlength="100" required autocomplete="name" onInput=${(event) => { setName(event.target.value); setFacts(null); loads.current += 1; }} /></label>
      ${needsToken && html`<label>${REVIEW.token} <input type="password" autocomplete="off" value=${token} onInput=${(event) => setToken((keptToken = event.target.value))} /></label>`}
      <button class=${facts ? "" : "main"}>${REVIEW.begin}</button>
    </form>
    ${facts &&
    html`<div class="row" role="group" aria-label=${REVIEW.queue}>
        ${QUEUES.map((which) => html`<button aria-pressed=${queue === which} onClick=${() => choose(which)}>${REVIEW.queues[which]}</button>`)}
      </div>
      <p class="note">${REVIEW.about[queue]}</p>
      <div tabindex="0" ref=${panel} role="region" aria-label=${REVIEW.answer}>
        ${item
          ? html`<article class="card">
              <h2 dir="auto">${item.question ?? ""}</h2>
              <p class="answer" dir="auto">${item.answer.trim() ? item.answer : html`<em class="dim">${REVIEW.blank}</em>`}</p>
            </article>
            <div class="row thumbs bottom" role="group" aria-label=${S.columns.label}>
              <button onClick=${() => label(true)}>✓ ${S.right} <span class="keys">(y)</span></button>
              <button onClick=${() => label(false)}>✗ ${S.wrong} <span class="keys">(n)</span></button>
              <button onClick=${() => label(null)}>${REVIEW.skip} <span class="keys">(s)</span></button>
            </div>`
          : html`<p class="card">${REVIEW.empty[queue]}</p>`}
      </div>
      <div class="row"><button onClick=${undo}>${REVIEW.undo} <span class="keys">(u)</span></button> <span role="status">${last}</span></div>
      <p class="note">${REVIEW.count(facts.labels, facts.sampled, facts.answers)} ${facts.agreement}</p>`}
  </div>`;
}
