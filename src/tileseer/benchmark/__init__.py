"""The benchmark stage: the journal that keeps every measurement, and the run that fills it."""
