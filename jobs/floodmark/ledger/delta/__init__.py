"""Delta tables without a JVM: logs, files, what is damaged, what is synced."""
