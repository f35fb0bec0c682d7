"""The status of rules, gathered without a JVM for the command line and Airflow's pages."""
