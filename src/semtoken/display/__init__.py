"""How results look in a terminal and in a notebook: there a small card of HTML without scripts, in the page's colours.

Enter by leaving a result on the last line of a cell: answers, parts, clusters, calibrators and reports have the method
`_repr_html_`, which calls the functions here. They format; they compute no scores.

shading.py         answers in a terminal and in HTML, doubtful words marked
elements.py        HTML elements, all text escaped
answer_cards.py    cards and tables of answers and of their parts
artifact_cards.py  cards of clusters, calibrators, thresholds and reports
"""
