"""Devices: where times come from. Each says whether it is simulated, recorded or measured."""
