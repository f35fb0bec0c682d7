"""What tasks do: before Spark, Spark itself, and after."""
