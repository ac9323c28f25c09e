"""Labels alone: which are probably wrong at every site, and the user's own files with corrected labels.

audit_settings.py   the settings of an audit, which are those of a run as far as they concern data and repair
audited_rows.py     the rows of an audit, from files, with or without a federation.toml, or a named dataset
judging.py          the repair's posteriors as a judgement of every label, without any training
audit_summary.py    all findings as types: the keys of `audit.json`
findings.py         from judgements to findings
sentences.py        the findings in words
worst_rows.py       the list of a site's most suspicious rows
set_findings.py     findings about candidate sets, which are ranked and stay as they are
set_sentences.py    these in words
cautions.py         where they cannot be trusted, in words
thumbnails.py       small pictures of the rows in question
audit_folder.py     the folder of an audit: label files, JSON, page
audit_page.py       the page
overview.py         what a coordinator may know of an audit over real sites
overview_page.py    its page
audit_table.py      the findings on a console
rewriting.py        the user's own files with corrected labels, and the way back
site_repair.py      a real site's own file with corrected labels, after an audit with others
formats/            how each format is written again: text, Parquet, archives of arrays, folders of images
"""
