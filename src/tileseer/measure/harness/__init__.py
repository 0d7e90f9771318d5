"""The measuring harness: worker processes, their supervisor, telemetry."""
