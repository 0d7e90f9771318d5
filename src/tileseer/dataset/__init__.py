"""The dataset stage: schema, assembly, recordings, efficiency."""
