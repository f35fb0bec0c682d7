"""The operations of a manual DAG run, and the form (DAG params) that offers them."""
