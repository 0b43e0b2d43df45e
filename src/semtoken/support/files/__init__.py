"""Files on disk: written whole or not at all, read whole or refused.

temporary.py     names and locks of files that are being written; deleting what killed processes left
safe_files.py    replacing, locking and reading files and folders
strict_json.py   JSON as everything here reads and writes it
record_files.py  JSON lines, CSV and Parquet as records
elements.py      the elements of a large array of JSON, one by one
texts.py         texts in UTF-8 and UTF-16; YAML
images.py        images in chat messages, and scans in a folder
outputs.py       what a command may overwrite
artifacts.py     folders of arrays with a checked configuration, such as clusters
"""
