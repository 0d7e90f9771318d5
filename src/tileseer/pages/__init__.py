"""Templates of the pages that the command writes."""
