"""The Spark session, the JVM, the lock, and errors of Spark."""
