"""The work of tasks: before Spark, Spark itself, and after."""
