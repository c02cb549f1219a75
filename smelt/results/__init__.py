"""Declared result tables, their Parquet files and the database built from them.

`smelt.results.schemas` and `smelt.results.parquet` import no other room, so every stage may use them.
"""
