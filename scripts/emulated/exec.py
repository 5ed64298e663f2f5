#!/usr/bin/env python3
"""Runs a command in the emulated machine, as ssh would: exec.py ADDRESS WORD...

Standard input, output and error, and the exit status are the command's; standard error arrives when the command has ended.
"""
import os
import secrets
import shlex
import socket
import sys
import threading

address, *words = sys.argv[1:]
name = secrets.token_hex(8)


def connect(line):
    connection = socket.create_connection((address, 1))
    connection.sendall(line.encode() + b"\n")
    return connection


def pass_input(connection):
    try:
        while data := os.read(0, 1 << 16):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # The command has ended without reading all of it.


def pass_output(connection, to):
    while data := connection.recv(1 << 16):
        while data:
            data = data[os.write(to, data) :]


command = connect(f"{name} {shlex.join(words)}")
threading.Thread(target=pass_input, args=[command], daemon=True).start()
pass_output(command, 1)
status, _, errors = connect(name).makefile("rb").read().partition(b"\n")
os.write(2, errors)
sys.stdout.flush()
os._exit(int(status or b"255"))
