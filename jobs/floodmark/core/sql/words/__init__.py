"""The words of SQL, by Spark's lexical rules, and the functions that a rule may use."""
