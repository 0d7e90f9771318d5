"""Tests for authors of learners and libraries: inherit a suite, and pytest runs it on yours."""
