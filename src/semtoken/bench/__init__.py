"""The benchmark: uncertainties compared on questions with known answers. Record once, score by every method, report.

settings.py, plan.py    what a run is asked to do -> its steps, and the files that each of them makes
run.py                  a run from its settings to its files; storage.py and manifest.py write them
datasets.py             question sets
models.py               models that answer, one at a time, and what is asked of them; controls.py
passes.py               one pass over the questions as plain data, and the questions of a shard; recorders.py has what
                        each pass records, and a pass as an executor makes it (`semtoken.support.executors`)
judges/                 right or wrong
read_results.py         a run read back into the numbers (results.py) that report/ turns into tables, figures and a page
estimate.py             how long a run will take, from a trial on a few questions
further_scores.py       scores that somebody brings

Enter by `semtoken bench run` and `bench report` (or `compare`, the same in a temporary folder), in Python by
`settings.check_settings`, `plan.make_plan` and `run.run_benchmark`.
"""
