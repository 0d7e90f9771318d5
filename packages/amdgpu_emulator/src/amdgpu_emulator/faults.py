"""What ends an execution: nothing is skipped or guessed."""


class EmulationFault(Exception):
    """A kernel did what cannot be executed, or what a GPU would answer with a fault."""


class MemoryFault(EmulationFault):
    """An access outside of its memory, or a store to what is read-only."""

    def __init__(self, message: str, lane: int = 0) -> None:
        """``lane``: of those of all waves that access at once."""
        super().__init__(message)
        self.lane = lane


class EmulationHang(EmulationFault):
    """The waves of a workgroup executed more instructions than a launch allows."""


class UnsupportedInstruction(EmulationFault):
    """An instruction, or a use of one, that is not emulated."""
