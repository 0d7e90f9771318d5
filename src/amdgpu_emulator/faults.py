"""What ends an execution: nothing is skipped or guessed."""


class EmulationFault(Exception):
    """A kernel did what cannot be executed, or what a GPU would answer with a fault."""


class EmulationHang(EmulationFault):
    """A wave executed more instructions than a launch allows."""


class UnsupportedInstruction(EmulationFault):
    """An instruction, or a use of one, that is not emulated."""
