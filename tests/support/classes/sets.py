"""A class of test rules whose rows follow the order of a set, and hash()."""

from __future__ import annotations


class Sets:
    """For each row five words, as a set has them, and what their hashes say."""

    output = "k STRING, at TIMESTAMP, words STRING, sum BIGINT"

    def process(self, key, rows, ctx):
        for row in rows:
            words = {f"{word} of {row['n']}" for word in ("one", "two", "three", "four", "five")}
            yield key[0], row["at"], " ".join(words), sum(hash(word) % 1000 for word in words)
