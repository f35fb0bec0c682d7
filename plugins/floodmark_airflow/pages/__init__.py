"""The pages in Airflow's UI: a list of all rules, and a page for each. They only read, without Spark or a JVM."""
