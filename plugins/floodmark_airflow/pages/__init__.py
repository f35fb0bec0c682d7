"""The pages in Airflow's UI: all rules at a glance, one rule in depth. They only read, without Spark and a JVM."""
