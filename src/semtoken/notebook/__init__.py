"""What a notebook shows of a result: a small card of HTML without scripts, in the colours of the page around it.

Enter by leaving a result on the last line of a cell: answers, parts, clusters, calibrators and reports have the method
`_repr_html_`, which calls the functions here. They format; they compute no scores.

elements.py     HTML elements, all text escaped
answers.py      cards and tables of answers and of their parts
artifacts.py    cards of clusters, calibrators, thresholds and reports
"""
