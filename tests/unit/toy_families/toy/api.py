"""There is one API level."""

NEWEST = ""


def detect(table, root):
    return NEWEST
