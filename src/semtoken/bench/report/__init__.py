"""The report on a run: one table of figures, one of tests between them, one of risks and probabilities, and a page.

measure.py              a run -> figures and tests, a row each; paired.py has the one rule for what a difference shows
probabilities.py        a run -> what is wrong among the surest answers, and probabilities of being right; their tables
comparison.py           figures and tests -> tables of methods, of STC without its parts, and of clusterings
overview.py             the first table, the main result in sentences, and notes
answers.py              single answers: what a calibrator says, and where score and judge disagree most
plots.py                figures of methods and clusterings, probability_plots.py those of risks and probabilities;
                        drawing.py is what they share
numbers.py, table.py    numbers as they are printed, and a table of texts; latex.py and markdown.py write one
csv_files.py            everything as CSV
content.py              all of this in reading order; writing.py makes a folder of it
one_cell.py             the short report of one model on one set of questions

Enter by `semtoken bench report RUN`; in Python by `content.build_report`, with what `read_results.collect` has read.
"""
