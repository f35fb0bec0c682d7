"""An Iceberg table as a target."""
