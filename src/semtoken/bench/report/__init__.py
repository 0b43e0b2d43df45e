"""A run as its readers want it: tables, figures and a page, beside the paper's numbers if wanted."""
