"""A run as its readers want it: tables, figures and a page.

cell_figures.py a run -> AUROC and PRR with intervals, paired tests, overheads
comparison.py   tables of the methods and of the clusterings; overview.py what a report opens with, and its notes
chances.py      for every method risk and coverage, and cross-fitted chances of being right
answers.py      a calibrator on these answers; the surest wrong answers and the most doubtful right ones
figure_list.py  every number as a row of a file
table.py        numbers and tables, and how they are written as HTML, LaTeX and Markdown
plots.py        figures
content.py      all of it in reading order, written as a folder

Enter by `semtoken bench report RUN`.
"""
