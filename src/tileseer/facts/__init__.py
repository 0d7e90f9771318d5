"""GPU targets (archs) and products, read from the tables ``config/arch_specs.json`` and ``config/hardware.yaml``."""
