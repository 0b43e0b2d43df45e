"""A run as its readers want it: tables, figures and a page.

measure.py      a run -> one table of figures with intervals, and one of paired tests (paired.py)
comparison.py   that table turned: methods, ablations, controls, clusterings; overview.py what a report opens with
probabilities.py      for every method risk and coverage, and cross-fitted probabilities of being right
answers.py      a calibrator on these answers; the surest wrong answers and the most doubtful right ones
table.py        numbers and texts, and how they are written as HTML, LaTeX and Markdown
plots.py        figures of a run, with probability_plots.py; drawing.py has what they share
content.py      all of it in reading order; one_cell.py the short form for one model and one set
writing.py      the folder of a report: a page, Markdown, LaTeX, figures; csv_files.py the rows behind them

Enter by `semtoken bench report RUN`.
"""
