"""Puts the program that CROSSWAY_PROGRAM names into the wheel, and names the platform for which it is."""

import os
import struct

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# e_machine of an ELF file, and what wheels call it.
MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x28: "armv7l", 0xF3: "riscv64"}


class Program(BuildHookInterface):
    def initialize(self, version, build_data):
        program = os.environ.get("CROSSWAY_PROGRAM")
        if not program:
            raise SystemExit("CROSSWAY_PROGRAM must name the static program; scripts/wheel.sh sets it")
        with open(program, "rb") as file:
            header = file.read(20)
        (machine,) = struct.unpack_from("<H", header, 18)
        if header[:4] != b"\x7fELF" or machine not in MACHINES:
            raise SystemExit(f"{program} is not a program for a known processor")
        name = MACHINES[machine]
        # A static program needs no C library, neither glibc nor musl.
        build_data["tag"] = f"py3-none-manylinux_2_17_{name}.manylinux2014_{name}.musllinux_1_1_{name}"
        build_data["pure_python"] = False
        build_data["shared_scripts"][program] = "crossway"
