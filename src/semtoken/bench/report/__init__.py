"""A run as its readers want it: tables, figures and a page, beside the paper's numbers if wanted.

cell_figures.py a run -> AUROC and PRR with intervals, paired tests, overheads
content.py      the tables (comparison, overview, sensitivity, against) and sentences in reading order
chances.py      for every method risk and coverage, and cross-fitted chances of being right;
                calibrator_check.py a calibrator on these answers;
                extreme_answers.py the surest wrong answers, the most doubtful right ones
table.py        a table before it is written; latex.py and markdown.py write it
plots.py        figures
writing.py      the whole report as a folder, or the former one untouched

Enter by `semtoken bench report RUN`.
"""
