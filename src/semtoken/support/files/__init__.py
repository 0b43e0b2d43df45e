"""Files on disk: written whole or not at all, read whole or refused.

temporary.py     names and locks of files that are being written; deleting what killed processes left
safe_files.py    replacing, locking and reading files and folders
strict_json.py   JSON as everything here reads and writes it
record_files.py  JSON lines, CSV and Parquet as records
artifacts.py     folders of arrays with a checked configuration, such as clusters
"""
