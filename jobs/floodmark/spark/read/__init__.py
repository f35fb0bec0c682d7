"""READ: the rows of a range, sorted, counted, checked, digested."""
