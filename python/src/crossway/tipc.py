"""TIPC sockets, without AF_TIPC in the kernel or in Python: over the kernel's TIPC if there is one, else a ``tipcd``.

The module calls the library ``libcrossway_tipc``. Sockets work as those of :mod:`socket`: calls block, unless a time-out is
set; selectors and :mod:`asyncio` can wait for them. Addresses are tuples as :mod:`socket` uses them for AF_TIPC:

* ``(ADDR_NAMESEQ, type, lower, upper[, scope])``: a range of instances of a service;
* ``(ADDR_NAME, type, instance, node[, scope])``: one instance; ``node`` is the node that looks it up, 0 for the cluster;
* ``(ADDR_ID, node, port, 0)``: a socket.

>>> import crossway.tipc as tipc
>>> with tipc.Socket(tipc.SOCK_RDM) as server:                       # doctest: +SKIP
...     server.bind((tipc.ADDR_NAMESEQ, 1000, 1, 1))
...     data, sender = server.recvfrom(1024)
"""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import errno
import os
import time
from typing import Any, Callable, Optional, Union

SOCK_STREAM, SOCK_DGRAM, SOCK_RDM, SOCK_SEQPACKET = 1, 2, 4, 5
ADDR_NAMESEQ, ADDR_NAME, ADDR_ID = 1, 2, 3
CLUSTER_SCOPE, NODE_SCOPE = 2, 3
#: Options of ``setsockopt`` and ``getsockopt``.
IMPORTANCE, SRC_DROPPABLE, DEST_DROPPABLE, CONN_TIMEOUT = 127, 128, 129, 130
#: Maximum length of a message in bytes; a write to a stream may be longer.
MESSAGE_MAX = 66000

Address = tuple
Buffer = Union[bytes, bytearray, memoryview]

_AF_TIPC = 30
# A call that waits returns to Python at least this often, so that Ctrl-C works.
_SLICE_MS = 200


class _Address(ctypes.Structure):
    _fields_ = [
        ("family", ctypes.c_uint16),
        ("form", ctypes.c_uint8),
        ("scope", ctypes.c_int8),
        ("a", ctypes.c_uint32),
        ("b", ctypes.c_uint32),
        ("c", ctypes.c_uint32),
    ]

    @classmethod
    def of(cls, address: Address, *, withdraw: bool = False) -> "_Address":
        form, first, second, third, *rest = address
        scope = rest[0] if rest else CLUSTER_SCOPE
        if form == ADDR_ID:
            first, second = second, first
        return cls(_AF_TIPC, form, -scope if withdraw else scope, first, second, third)

    def tuple(self) -> Address:
        if self.form == ADDR_ID:
            return (ADDR_ID, self.b, self.a, 0, self.scope)
        return (self.form, self.a, self.b, self.c, self.scope)


_library: Optional[ctypes.CDLL] = None


def _lib() -> ctypes.CDLL:
    global _library
    if _library is None:
        name = os.environ.get("CROSSWAY_TIPC_LIBRARY") or ctypes.util.find_library("crossway_tipc")
        try:
            lib = ctypes.CDLL(name or "libcrossway_tipc.so.0")
        except OSError as error:
            raise OSError(
                error.errno or errno.ENOENT,
                f"the library libcrossway_tipc is missing ({error}); install it with 'make install' of Crossway, or set "
                "CROSSWAY_TIPC_LIBRARY to its path",
            ) from None
        handle, address, wait = ctypes.c_void_p, ctypes.POINTER(_Address), ctypes.c_int64
        for call, result, arguments in (
            ("open", ctypes.c_int, [ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(handle)]),
            ("error", ctypes.c_char_p, []),
            ("close", None, [handle]),
            ("fd", ctypes.c_int, [handle]),
            ("bind", ctypes.c_int, [handle, address]),
            ("listen", ctypes.c_int, [handle]),
            ("connect", ctypes.c_int, [handle, address, wait]),
            ("accept", ctypes.c_int, [handle, ctypes.POINTER(handle), address, wait]),
            ("send", ctypes.c_int64, [handle, ctypes.c_char_p, ctypes.c_size_t, address, wait]),
            ("recv", ctypes.c_int64, [handle, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(_Message), wait]),
            ("shutdown", ctypes.c_int, [handle]),
            ("getsockname", ctypes.c_int, [handle, address]),
            ("getpeername", ctypes.c_int, [handle, address]),
            ("setsockopt", ctypes.c_int, [handle, ctypes.c_uint32, ctypes.c_uint32]),
            ("getsockopt", ctypes.c_int, [handle, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32)]),
            ("take_error", ctypes.c_int, [handle]),
        ):
            function = getattr(lib, f"ctipc_{call}")
            function.restype, function.argtypes = result, arguments
        _library = lib
    return _library


class _Message(ctypes.Structure):
    _fields_ = [("sender", _Address)] + [
        (name, ctypes.c_uint32)
        for name in "event error truncated has_service service lower upper has_member member".split()
    ]


def _checked(code: int) -> int:
    if code < 0:
        raise OSError(-code, os.strerror(-code))
    return code


class Socket:
    """A TIPC socket.

    Args:
        kind: ``SOCK_STREAM``, ``SOCK_SEQPACKET``, ``SOCK_RDM`` or ``SOCK_DGRAM``.
        path: the path of a tipcd's socket; ``"kernel"`` for the kernel's TIPC only; by default the kernel's TIPC if there is
            one, else the tipcd at its usual path.

    Raises:
        OSError: no TIPC can be reached; the message says what to do.
    """

    def __init__(self, kind: int = SOCK_SEQPACKET, path: Optional[str] = None, *, _handle: Any = None) -> None:
        self._timeout: Optional[float] = None
        self.kind = kind
        self._handle = _handle
        if _handle is None:
            lib, out = _lib(), ctypes.c_void_p()
            code = lib.ctipc_open(kind, None if path is None else os.fsencode(path), ctypes.byref(out))
            if code < 0:
                raise OSError(-code, (lib.ctipc_error() or b"").decode(errors="replace"))
            self._handle = out

    def _open(self) -> Any:
        if self._handle is None:
            raise OSError(errno.EBADF, "the socket is closed")
        return self._handle

    def close(self) -> None:
        """Close the socket; closing it again does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _lib().ctipc_close(handle)

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def fileno(self) -> int:
        """Return the descriptor, for polling only; -1 if the socket is closed."""
        return -1 if self._handle is None else _lib().ctipc_fd(self._handle)

    def settimeout(self, seconds: Optional[float]) -> None:
        """Let calls wait this long, then raise ``TimeoutError``; 0 does not wait, ``None`` waits for ever."""
        if seconds is not None and seconds < 0:
            raise ValueError("a time-out must not be negative")
        self._timeout = seconds

    def gettimeout(self) -> Optional[float]:
        """Return the time-out in seconds."""
        return self._timeout

    def setblocking(self, flag: bool) -> None:
        """Wait for ever, or not at all."""
        self._timeout = None if flag else 0.0

    def _wait(self, call: Callable[[int], int]) -> int:
        """Repeat a call, which takes milliseconds, until it succeeds or the time-out is over."""
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            left = _SLICE_MS if end is None else min(_SLICE_MS, max(0, round((end - time.monotonic()) * 1000)))
            code = call(left)
            if code != -errno.EAGAIN or self._timeout == 0:
                return _checked(code)
            if end is not None and time.monotonic() >= end:
                # TimeoutError takes no number that Python would turn into another class.
                raise TimeoutError("timed out")

    def bind(self, address: Address) -> None:
        """Bind the socket to a service or a range; may be called repeatedly."""
        _checked(_lib().ctipc_bind(self._open(), ctypes.byref(_Address.of(address))))

    def unbind(self, address: Optional[Address] = None) -> None:
        """Withdraw a binding, or all bindings."""
        one = None if address is None else ctypes.byref(_Address.of(address, withdraw=True))
        _checked(_lib().ctipc_bind(self._open(), one))

    def listen(self, backlog: int = 0) -> None:
        """Accept connections; the argument is for compatibility with :mod:`socket`."""
        _checked(_lib().ctipc_listen(self._open()))

    def connect(self, address: Address) -> None:
        """Connect, or set the default destination of a connectionless socket."""
        ms = -1 if self._timeout is None else round(self._timeout * 1000)
        code = _lib().ctipc_connect(self._open(), ctypes.byref(_Address.of(address)), ms)
        if code == -errno.EINPROGRESS and self._timeout:
            raise TimeoutError("timed out")
        _checked(code)

    def accept(self) -> tuple["Socket", Address]:
        """Return a connection and its other end's address."""
        out, sender = ctypes.c_void_p(), _Address()
        handle = self._open()
        self._wait(lambda ms: _lib().ctipc_accept(handle, ctypes.byref(out), ctypes.byref(sender), ms))
        return Socket(self.kind, _handle=out), sender.tuple()

    def send(self, data: Buffer) -> int:
        """Send a message, or part of a stream; return how many bytes were accepted."""
        return self._send(bytes(data), None)

    def sendall(self, data: Buffer) -> None:
        """Send all of it."""
        rest = bytes(data)
        while True:
            rest = rest[self._send(rest, None) :]
            if not rest:
                return

    def sendto(self, data: Buffer, address: Address) -> int:
        """Send a message to an address."""
        return self._send(bytes(data), _Address.of(address))

    def _send(self, data: bytes, to: Optional[_Address]) -> int:
        handle, to_p = self._open(), None if to is None else ctypes.byref(to)
        return self._wait(lambda ms: _lib().ctipc_send(handle, data, len(data), to_p, ms))

    def recv(self, size: int) -> bytes:
        """Receive a message of at most ``size`` bytes, or stream data.

        Returns ``b""`` after the other end has called :meth:`shutdown`; if it was only closed, ``ConnectionResetError`` is
        raised. TIPC discards empty messages.
        """
        return self._recv(size, None)

    def recvfrom(self, size: int) -> tuple[bytes, Address]:
        """Receive a message and its sender's address.

        Raises:
            OSError: what arrived is no message: EHOSTUNREACH for a message of ours that was returned.
        """
        about = _Message()
        data = self._recv(size, about)
        if about.event == 1:
            raise OSError(errno.EHOSTUNREACH, f"a message was returned (TIPC error {about.error})")
        return data, about.sender.tuple()

    def _recv(self, size: int, about: Optional[_Message]) -> bytes:
        handle, buffer = self._open(), ctypes.create_string_buffer(size)
        about_p = None if about is None else ctypes.byref(about)
        got = self._wait(lambda ms: _lib().ctipc_recv(handle, buffer, size, about_p, ms))
        return ctypes.string_at(buffer, got)

    def shutdown(self, how: int = 2) -> None:
        """Shut the connection down in both directions; TIPC knows no other way."""
        _checked(_lib().ctipc_shutdown(self._open()))

    def getsockname(self) -> Address:
        """Return the socket's own address."""
        out = _Address()
        _checked(_lib().ctipc_getsockname(self._open(), ctypes.byref(out)))
        return out.tuple()

    def getpeername(self) -> Address:
        """Return the address of the connection's other end."""
        out = _Address()
        _checked(_lib().ctipc_getpeername(self._open(), ctypes.byref(out)))
        return out.tuple()

    def setsockopt(self, name: int, value: int) -> None:
        """Set an option of level SOL_TIPC."""
        _checked(_lib().ctipc_setsockopt(self._open(), name, value))

    def getsockopt(self, name: int) -> int:
        """Read an option of level SOL_TIPC."""
        value = ctypes.c_uint32()
        _checked(_lib().ctipc_getsockopt(self._open(), name, ctypes.byref(value)))
        return value.value

    async def _async(self, call: Callable[[], Any], add: str) -> Any:
        """Repeat a call that must not wait whenever asyncio's loop says that the socket is ready."""
        loop, kept = asyncio.get_running_loop(), self._timeout
        while True:
            self._timeout = 0.0
            try:
                return call()
            except BlockingIOError:
                pass
            finally:
                self._timeout = kept
            ready, fd = loop.create_future(), self.fileno()
            getattr(loop, f"add_{add}")(fd, lambda: ready.done() or ready.set_result(None))
            try:
                await ready
            finally:
                getattr(loop, f"remove_{add}")(fd)

    async def arecv(self, size: int) -> bytes:
        """As :meth:`recv`, for coroutines."""
        return await self._async(lambda: self.recv(size), "reader")

    async def arecvfrom(self, size: int) -> tuple[bytes, Address]:
        """As :meth:`recvfrom`, for coroutines."""
        return await self._async(lambda: self.recvfrom(size), "reader")

    async def asend(self, data: Buffer, address: Optional[Address] = None) -> int:
        """As :meth:`send` or :meth:`sendto`, for coroutines."""
        to = None if address is None else _Address.of(address)
        return await self._async(lambda: self._send(bytes(data), to), "writer")

    async def aaccept(self) -> tuple["Socket", Address]:
        """As :meth:`accept`, for coroutines."""
        return await self._async(self.accept, "reader")
