"""Devices: where times come from. Each says of itself whether it is simulated, recorded or measured."""
