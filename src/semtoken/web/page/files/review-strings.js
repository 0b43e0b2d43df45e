// Every sentence of Review, which a file never opens.
import { count, some } from "./strings.js";

export const REVIEW = {
  guarantee: "The guarantee",
  name: "Your name",
  token: "Token of the server",
  begin: "Label answers",
  queue: "Which answers",
  queues: { sample: "Random sample", doubtful: "Most doubtful", disagreement: "Disagreements" },
  about: {
    sample: "Drawn beforehand, at random. Only these labels show whether the guarantee holds, and make a new calibrator.",
    doubtful: "The least sure of the newest answers. Correct what you find; these labels never enter a guarantee.",
    disagreement: "Models, or the last two calibrators, disagree on these. These labels never enter a guarantee.",
  },
  answer: "The answer to label",
  blank: "The answer is empty.",
  skip: "Cannot tell",
  undo: "Undo",
  undone: "Your last label is taken back.",
  nothingToUndo: "You have no label to take back.",
  said: (value) => (value === null ? "Kept: cannot tell." : value ? "Kept: right." : "Kept: wrong."),
  empty: {
    sample: "Nothing is left for you to label. Texts have to be kept for this: start the server with --journal.texts true.",
    doubtful: "There is no doubtful answer that nobody has labeled.",
    disagreement: "There is no disagreement that nobody has labeled.",
  },
  count: (labels, sampled, answers) => `${some(labels, "label")}; ${count(sampled)} of ${some(answers, "answer is", "answers are")} in the random sample. --journal.sample sets its share of the answers that follow (by default 5%).`,
};
