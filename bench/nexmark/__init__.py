"""The Nexmark benchmark: an auction house's events and questions about them, as rules over Delta tables.

The questions are those of https://github.com/nexmark/nexmark (q6, q10 and q21 are left out). If one had to be changed,
to event time or to a bounded form, its file in `rules/` says so.
"""
