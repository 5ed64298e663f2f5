"""The calls of the table that compares the node with a kernel, each with the result of Python's own socket module."""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../tipc/node/tests/interop"))

import ends
import errno_table

settle = errno_table.SETTLE_BUSY if "busy" in sys.argv else errno_table.SETTLE
for what, got in errno_table.run(ends.Kernel(), settle):
    print(what, "=", got if not isinstance(got, bytes) or len(got) < 40 else len(got))
