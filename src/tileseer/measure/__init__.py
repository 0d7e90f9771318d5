"""Which pairs can run, and how long they take: devices, the harness, journals, budgets, support, verdicts."""
