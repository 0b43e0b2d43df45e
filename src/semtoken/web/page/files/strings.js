// Every sentence that the page shows, in one place: a translation is another file like this one.
// Figures are written as semtoken.support.text writes them in Python, where what stands in the middle of two numbers goes to
// the even digit; toFixed takes the larger one.
function fixed(value, decimals) {
  const [whole, behind] = value.toFixed(decimals + 30).split(".");
  if (behind === undefined) return whole; // 1e+21, Infinity, NaN
  const below = decimals ? `${whole}.${behind.slice(0, decimals)}` : whole;
  return /[02468]$/.test(below) && /^50*$/.test(behind.slice(decimals)) ? below : value.toFixed(decimals);
}
export function number(value, decimals = 3) {
  const text = fixed(value, decimals);
  if (Number(text) === 0 && value > 0) return `< ${fixed(10 ** -decimals, decimals)}`;
  if (Number(text) === 1 && value < 1) return `> ${fixed(1 - 10 ** -decimals, decimals)}`;
  return text;
}
const whole = (share) => fixed(100 * share, 0);
function probability(p) {
  const text = `${whole(p)}%`;
  return text === "0%" && p > 0 ? "under 1%" : text === "100%" && p < 1 ? "over 99%" : text;
}
const about = (text) => (text.includes(" ") ? text : `about ${text}`);
// What a model gave a word.
const percent = (p) => (p < 0.01 ? "under 1%" : p > 0.99 ? "over 99%" : probability(p));
// A confidence: no percent sign, which would make it a probability.
const digits = (p) => number(p, 2);
const interval = (low, high) => (digits(low) === digits(high) ? "" : ` (${digits(low)} to ${digits(high)})`);
const nats = (u) => (u === null ? "infinite" : u.toPrecision(3));
export const count = (n) => n.toLocaleString("en");
export const some = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export const S = {
  percent,
  probability,
  digits,
  tenths: (p) => `${fixed(10 * p, 0)} of 10`,
  range: (low, high) => ` (${whole(low)}–${whole(high)})`,
  viewsName: "Views",
  views: { ask: "Ask", file: "File", compare: "Compare", fields: "Fields", calibration: "Calibration", review: "Review", history: "History" },

  send: "Answer",
  question: "Your question",
  askHint: "Ask something. The answer appears with the phrases marked that the model was least sure of.",
  clickHint: "Click a marked phrase to see what else the model considered.",
  sureCanBeWrong: "What is not marked can be wrong, too: the model can be sure of something false.",
  examplesName: "Examples",
  examples: ["What is the capital of Turkey?", "Which language is spoken in Peru?", "Which country is Kyoto in?"],
  asking: "Waiting for the model …",
  following: "When the answer is complete, the model is asked what else it could have said.",
  stop: "Stop",
  noScore: "The server sent no score with the answer.",
  serverGone: "The server does not answer. Is semtoken still running?",
  upstream: (address) => `Answers come from ${address}`,
  key: "API key",
  keyNote: "The key stays in this page's memory: it is not stored, and it is gone when you close the page.",
  model: "Model",
  listModels: "List models",

  accepted: "Accepted",
  check: "Check this",
  acceptedNote: "An accepted answer can be wrong: the guarantee is about all accepted answers together.",
  copy: "Copy the answer with its doubts",
  copiedDoubt: (text, c, others) => `In doubt: “${text}” (${percent(c)})${others.length ? `; also likely: ${others.map((o) => `“${o.text.trim()}” ${percent(o.share)}`).join(", ")}` : ""}`,
  copied: "Copied",
  notCopied: "The browser did not allow it",
  numbers: "show percentages",
  markAll: "mark every phrase",
  close: "Close",
  weak: "weak, ",
  some: "some doubt, ",
  probability_correct: (c, [low, high] = [], n) =>
    n < 100
      ? [`Right in about ${S.tenths(c)} answers that score like this one`, ` (from only ${n} labeled answers)`]
      : [`Right in ${about(probability(c))} of the answers that score like this one`, ` (${probability(low)} to ${probability(high)}; from ${count(n)} labeled answers)`],
  confidenceSaid: (c, bounds, sentence) => [`Confidence ${digits(c)}${bounds ? interval(...bounds) : ""}`, sentence ? `: ${sentence.charAt(0).toLowerCase()}${sentence.slice(1)}` : "."],
  number: "Number to show",
  usualNumber: "confidence",
  asked: (title, value, bounds) => [`${title}: ${nats(value)}${bounds && nats(bounds[0]) !== nats(bounds[1]) ? ` (${nats(bounds[0])} to ${nats(bounds[1])})` : ""}`, ", higher is riskier; lists are ranked by the confidence."],
  uncalibrated: "Confidence ranks answers; it is not a probability of being right. To get a probability, label some answers in the File view and run semtoken calibrate.",
  uncertain: (u) => `Sequence uncertainty ${u}.`,
  noProbability: "No calibrator, so no probability: scores of two answers are not compared here.",
  noAnswerScore: (reason) => `This answer has no score: ${reason}`,
  bounds: "The confidence has an interval, since only the best tokens of each step are known.",
  truncated: "The answer was cut off by the token limit.",
  leftUnmarked: (n) => `${some(n, "phrase is", "phrases are")} not marked: the model hesitated about the wording only, and the other wordings say the same.`,
  at: (text) => `At “${text}” the model also considered`,
  chosen: "in the answer",
  counted: "means the same here",
  shares: "Shares of the model's belief at this point. Look the answer up before you rely on it.",
  sharesFollowed: "Shares of the model's belief at this point, with how it would have gone on. Look the answer up before you rely on it.",
  formOnly: "The model was unsure of the wording only: the other wordings that it considered say the same.",
  nothingKnown: "Nothing else was likely at this place, or it was not kept: score with --tokens to keep it.",
  mayGoOn: "Shares of the model's belief at this point. Another beginning may go on differently. Look the answer up before you rely on it.",
  negation: (words) => `A word reverses the meaning of this sentence: ${words.join(", ")}.`,
  everyToken: "Every token",
  tokenColumns: ["token", "own probability", "counted", "also considered"],
  legendLead: "How sure the model was of a phrase: ",
  legend: [
    ["weak", "under 50%"],
    ["some", "50 to 85%"],
    ["", "· only the weakest are marked, no function words"],
  ],

  unscored: (n) => `${some(n, "reply", "replies")} could not be scored`,

  fields: "Fields, the most doubtful first",
  fieldColumns: ["field", "value", "confidence", "notes"],
  ends: (p) => `ends here: ${percent(p)}`,
  missing: "the schema asks for it, the answer lacks it",
  missingValue: "(missing)",
  fieldOf: (path, document) => `${path || "fields"} of document ${document}`,
  alsoLikely: (rival, share) => `Also likely: “${rival}” ${percent(share)}.`,
  fieldDoubt: ({ confidence, rival, rival_probability: share, note }) => [confidence === null || confidence === undefined ? "" : `confidence ${digits(confidence)}`, rival ? `also likely: “${rival}” ${percent(share)}` : "", note].filter(Boolean).join(" · "),
  fieldConfidence: (part) => (part.confidence === null || part.confidence === undefined ? "Nothing is known of its confidence." : `Confidence ${digits(part.confidence)}: how sure the model was of this value.`),
  fieldRows: (n) => `${some(n, "field")}, the most doubtful first`,
  fieldColumn: "field and value",
  documentsClean: (k, n) => k === 0 ? `Each of ${some(n, "document")} has a field to be checked.` : `In ${count(k)} of ${some(n, "document")} no field has to be checked.`,

  drop: "Drop a file of scored answers here (JSON lines), or choose one. It stays in your browser.",
  badLine: (n) => `Line ${n} is not a scored answer, so the file was not opened.`,
  emptyFile: "The file holds no answers.",
  another: "Open another file",
  others: "Open other files",
  rows: (n, by) => `${some(n, "answer")}, the most doubtful first${by ? `, ranked by ${by === "confidence" ? "the confidence" : by}` : ""}`,
  columns: { place: "#", risk: "uncertainty", probability_correct: "probability", prompt: "question", text: "question and answer", label: "right?" },
  cut: (k, n) => (k === n ? `Check all ${count(n)}` : k ? `Check the ${count(k)} most doubtful of ${count(n)}` : `Check none of ${count(n)}`),
  alike: (n) => `${count(n)} answers have the same score as the last one to check: the cut goes through them in their order in the list.`,
  accepts: (k) => `${k ? `The other ${count(k)}` : "None"} would be accepted unread`,
  expectedWrong: (x) => `; expected wrong among them ${x}`,
  labeledWrong: (n, wrong) => `Of these, ${some(n, "answer has a label", "answers have a label")}: ${count(wrong)} wrong.`,
  useGuaranteed: (value) => `Use the threshold with the guarantee (${value})`,
  sureWrong: "This does not find answers that the model is sure of and that are wrong.",
  pages: (from, to, n) => `${count(from)} to ${count(to)} of ${count(n)}`,
  previous: "Previous",
  next: "Next",
  find: "Find",
  show: "Show",
  filters: { all: "all", open: "without a label", right: "marked right", wrong: "marked wrong" },
  order: "Order",
  orders: { place: "most doubtful first", random: "random, for a fair sample", field: "by field", document: "by document", other: "by column" },
  exportLabels: "Save labels",
  exportAccepted: "Save the accepted",
  exportRest: "Save the rest",
  keys: "Select a row with the arrow keys; y marks it right, n wrong, u takes the label away.",
  labelsNext: (n) => `${some(n, "label")} given. Save them, then run: semtoken calibrate labeled.jsonl -o calibrator`,
  right: "right",
  scan: "The image that was asked about. Press to see it larger.",
  wrong: "wrong",

  wordingsWhy: "Ask the same thing in two ways. If the answers differ, look it up.",
  wording: (i) => (i === 1 ? "One wording" : "Another wording"),
  askBoth: "Ask both",
  bothSame: "The two answers are the same.",
  bothDiffer: "The two answers differ.",
  chooseFile: (i) => (i === 1 ? "Choose a file of scored answers" : "Choose another one, to the same questions"),
  chosenFile: (name) => `${name} is open. Choose another file`,
  noPairs: "The two files have no question in common.",
  differ: (k, n) => `The answers differ in ${count(k)} of ${some(n, "question")}.`,
  scales: "Scores of two models are not on the same scale. Each answer has its own probability if there is a calibrator, or else its rank in its own file.",
  onlyDiffering: "only where they differ",
  pairs: "Differing answers first, then the riskiest",
  standing: "place",
  place: (share) => `riskier than ${Math.floor(100 * share)}%`,
  sameWords: "same words?",
  yes: "yes",
  no: "no",

  calibrated: (task, n) => (task ? `calibrated for ${task} (${some(n, "label")})` : `calibrated on ${some(n, "label")}`),
  noCalibrator: "No calibrator is loaded. Make one with: semtoken calibrate labeled.jsonl -o DIR, and start with --calibrator DIR.",
  labels: (n, right) => `Fitted on ${some(n, "labeled answer")}, ${count(right)} of them right.`,
  plots: {
    reliability: "Were the probabilities right?",
    reliabilityNote: (crossed) =>
      `Points on the line were right as often as the probability says. Bars are 95% intervals, from the labels in this file${crossed ? "; each probability comes from a calibrator that did not see the answer" : ""}.`,
    rightShare: "Upwards: the share that was right",
    probabilities: "From an uncertainty to a probability",
    probabilitiesNote: "The band shows how far one more label could move the probability.",
    probability_correct: "probability of being right",
    probabilityUp: "Upwards: the probability of being right",
    risk: "How many are wrong if only some are answered",
    riskNote: (chosen) => `Line: expected by the probabilities. Points: counted on the labeled answers${chosen ? "; the triangle is the threshold with the guarantee" : ""}.`,
    answered: "share of questions answered",
    wrongShare: "Upwards: the share of wrong answers among them",
  },
  origin: "What it was fitted for",
  facts: { method: "method", created: "made", signature: "clusters and rules", clusters: "cluster labels", distribution: "probabilities", scores: "scores", k: "tokens known a step", model: "model", dtype: "precision", engine: "engine", template: "prompt template", judge: "judged by", task: "task" },
  calibrationLimits: "The guarantee holds for answers like the labeled ones: same model, prompts, kind of question and judge. It is about all accepted answers together, not about each one.",

  clear: "Clear",
  history: "What you asked in this browser. It is kept here only.",
  historyColumns: ["question and answer", "probability or confidence", "model"],
  confidence: (c) => `confidence ${digits(c)}`,
  noHistory: "The questions that you ask are kept in this browser only.",
};
