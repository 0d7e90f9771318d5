"""A HIP program whose kernels are executed here: it runs as a process of its own, and asks over a socket.

The program is linked with a stand-in for the HIP runtime that has the other end. A message is its length in eight bytes
and its content: numbers of eight bytes, and texts with their length before them. A negative number in an answer is
followed by the reason.
"""

import io
import os
import socket
import struct
import subprocess
from collections.abc import Sequence

import numpy as np

from amdgpu_emulator.code_object import CodeObject, load
from amdgpu_emulator.device import EmulatedGpu

VARIABLE = "AMDGPU_EMULATOR"
"""Number of the socket, in the environment of the program."""
_INT64 = struct.Struct("<q")


class _Message(io.BytesIO):
    """Numbers and texts, one behind the other."""

    def number(self) -> int:
        value: int = _INT64.unpack(self.read(_INT64.size))[0]
        return value

    def text(self) -> bytes:
        return self.read(self.number())


def _text(content: bytes) -> bytes:
    return _INT64.pack(len(content)) + content


class _Session:
    """What one program has launched."""

    def __init__(self) -> None:
        self._gpu = EmulatedGpu()
        self._code: dict[int, CodeObject] = {}
        self._kernel: tuple[CodeObject, str]
        self._launches: dict[int, tuple[CodeObject, str, list[int], list[int], list[bytes], int]] = {}

    def answer(self, content: bytes) -> bytes:
        """Answer one message; a failure is an answer too."""
        message = _Message(content)
        try:
            return {b"kernel": self._find, b"launch": self._take, b"run": self._run}[message.text()](message)
        except Exception as error:
            return _INT64.pack(-1) + _text(f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace"))

    def _find(self, message: _Message) -> bytes:
        """Return the number of a kernel's arguments, and their sizes."""
        name, address, bundle = message.text().decode(), message.number(), message.text()
        if bundle:
            self._code[address] = load(bundle)
        if name not in self._code[address].kernels:
            raise ValueError(f"the code object has no kernel {name}")
        self._kernel = self._code[address], name
        rows = self._code[address].kernels[name].explicit_arguments
        return b"".join(map(_INT64.pack, (len(rows), *(row[".size"] for row in rows))))

    def _take(self, message: _Message) -> bytes:
        """Return the number of a launch of that kernel."""
        code, name = self._kernel
        sizes = [message.number() for _ in range(6)]
        shared = message.number()
        values = [message.text() for _ in code.kernels[name].explicit_arguments]
        number = len(self._launches)
        self._launches[number] = code, name, sizes[:3], sizes[3:], values, shared
        return _INT64.pack(number)

    def _run(self, message: _Message) -> bytes:
        """Return the instructions that a launch has executed, and the content of all memory after it."""
        code, kernel, grid, block, values, shared = self._launches[message.number()]
        memory = {}
        for _ in range(message.number()):
            address = message.number()
            memory[address] = np.frombuffer(bytearray(message.text()), np.uint8)
        try:
            for address, content in memory.items():
                self._gpu.memory.map(address, content, "allocated memory")
            execution = self._gpu.launch(code, kernel, grid, block, values, dynamic_lds=shared)
        finally:
            for address in memory:
                self._gpu.memory.unmap(address)
        if mistakes := [*execution.races, *execution.unwritten]:
            raise RuntimeError(str(mistakes[0]))
        return _INT64.pack(execution.opcodes.total()) + b"".join(_text(part.tobytes()) for part in memory.values())


def run_program(command: Sequence[str]) -> int:
    """Run a program with its arguments; return its exit status. ``OSError`` if it cannot be started."""
    ours, theirs = socket.socketpair()
    environment = {**os.environ, VARIABLE: str(theirs.fileno())}
    with ours, subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        session, stream = _Session(), ours.makefile("rwb")
        while head := stream.read(_INT64.size):
            answer = session.answer(stream.read(*_INT64.unpack(head)))
            stream.write(_INT64.pack(len(answer)) + answer)
            stream.flush()
    return process.returncode
