"""Rows of measurements: assembly from journals, recordings of others, provenance."""
