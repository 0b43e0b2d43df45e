// The calibrator: what it guarantees, where its labels came from, and three plots made by hand.
import { html } from "./preact.js";
import { S } from "./strings.js";

const [LEFT, TOP, SIZE] = [46, 10, 220];
const across = (v) => LEFT + SIZE * v;

// `top`: the share that the vertical axis ends at.
function Plot({ title, note, x, y, line, band, dots, bars, diagonal, marked, top = 1 }) {
  const up = (v) => TOP + SIZE * (1 - v / top);
  const path = (points) => points.map(([a, b], i) => `${i ? "L" : "M"}${across(a).toFixed(1)},${up(b).toFixed(1)}`).join("");
  const around = band && `${path(band.map(([a, , high]) => [a, high]))}L${path([...band].reverse().map(([a, low]) => [a, low])).slice(1)}Z`;
  return html`<figure>
    <figcaption><strong>${title}</strong></figcaption>
    <svg viewBox="0 0 300 275" role="img" aria-label=${`${title}. ${note}`}>
      ${[0, 0.25, 0.5, 0.75, 1].map(
        (v) => html`<line x1=${across(0)} x2=${across(1)} y1=${up(top * v)} y2=${up(top * v)} class="grid" />
          <text x=${LEFT - 6} y=${up(top * v) + 4} text-anchor="end">${S.probability(top * v)}</text>
          <text x=${across(v)} y=${TOP + SIZE + 16} text-anchor="middle">${x.percent ? S.probability(v) : v}</text>`,
      )}
      ${diagonal && html`<line x1=${across(0)} y1=${up(0)} x2=${across(1)} y2=${up(1)} class="diagonal" />`}
      ${around && html`<path d=${around} class="band" />`}
      ${line && html`<path d=${path(line)} class="line" />`}
      ${(bars ?? []).map(([a, , low, high]) => html`<line x1=${across(a)} x2=${across(a)} y1=${up(low)} y2=${up(high)} class="bar" />`)}
      ${(dots ?? []).map(([a, b]) => html`<circle cx=${across(a)} cy=${up(b)} r="3" class="dot" />`)}
      ${marked && html`<path d=${`M${across(marked[0])},${up(marked[1]) - 7}l6,11h-12Z`} class="chosen" />`}
      <text x=${across(0.5)} y=${TOP + SIZE + 36} text-anchor="middle">${x.name}</text>
    </svg>
    <p class="note">${y}. ${note}</p>
  </figure>`;
}

// Where an axis of shares ends, so that a plot of few wrong answers is not mostly empty.
const topOf = (points) => [0.2, 0.4, 0.6].find((top) => points.every(([, share]) => share <= top)) ?? 1;

export function Calibration({ card }) {
  if (!card) return html`<p class="card">${S.noCalibrator}</p>`;
  const tested = card.tested ?? [];
  const chosen = card.threshold && tested.length ? [...tested].filter(([share]) => share <= card.threshold.accepted + 0.02).at(-1) : null;
  return html`<section class="card">
    ${card.guarantee && html`<p class="guarantee">${card.guarantee}</p>`}
    <p>${S.labels(card.n_labels, card.n_correct)}</p>
    <div class="plots">
      ${card.reliability &&
      html`<${Plot} title=${S.plots.reliability} note=${S.plots.reliabilityNote(card.cross_validated)} x=${{ name: S.plots.probability_correct, percent: true }} y=${S.plots.rightShare} dots=${card.reliability} bars=${card.reliability} diagonal />`}
      ${card.probabilities &&
      html`<${Plot} title=${S.plots.probabilities} note=${S.plots.probabilitiesNote} x=${{ name: S.columns.risk }} y=${S.plots.probabilityUp} line=${card.probabilities} band=${card.probabilities.map(([a, , low, high]) => [a, low, high])} />`}
      ${card.expected &&
      html`<${Plot} title=${S.plots.risk} note=${S.plots.riskNote(Boolean(chosen))} x=${{ name: S.plots.answered, percent: true }} y=${S.plots.wrongShare} line=${card.expected} dots=${tested} marked=${chosen} top=${topOf([...card.expected, ...tested])} />`}
    </div>
    <div class="scroll" tabindex="0" role="region" aria-label=${S.origin}><table>
      <caption>${S.origin}</caption>
      <tbody>${Object.entries({ method: card.method, created: card.created?.slice(0, 10), ...card.facts }).map(
        ([name, value]) => html`<tr><th scope="row">${S.facts[name] ?? name}</th><td dir="auto">${value}</td></tr>`,
      )}</tbody>
    </table></div>
    <p class="note">${S.calibrationLimits}</p>
  </section>`;
}
