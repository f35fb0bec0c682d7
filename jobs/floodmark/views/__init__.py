"""Where rules stand, gathered without a JVM: what the command line and Airflow's pages tell."""
