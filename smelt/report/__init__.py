"""Figures, tables, notebooks and the site, from the study's database alone; claims from the stage tables.

A notebook needs `from smelt.report.book import open_report`.
"""
