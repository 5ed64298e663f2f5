// Package tipc gives Go programs TIPC sockets over the kernel's AF_TIPC or a tipcd, by Crossway's C library: Go makes its system calls itself, so
// `crossway tipc run` cannot help them. Build with cgo and pkg-config (crossway-tipc).
//
// A call that waits keeps a thread of the operating system. A program with very many sockets asks for descriptors (Socket.Fd), polls those, and calls with a timeout of 0.
package tipc

// #cgo pkg-config: crossway-tipc
// #include <stdlib.h>
// #include <crossway_tipc.h>
import "C"

import (
	"errors"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Kinds of socket.
const (
	Stream    = C.CTIPC_STREAM
	Dgram     = C.CTIPC_DGRAM
	RDM       = C.CTIPC_RDM
	Seqpacket = C.CTIPC_SEQPACKET
)

// Scopes of a binding; negative, the binding is taken back.
const (
	Cluster = C.CTIPC_CLUSTER
	Node    = C.CTIPC_NODE
)

// Events that a message can be.
const (
	Data       = C.CTIPC_DATA
	Returned   = C.CTIPC_RETURNED
	End        = C.CTIPC_END
	MemberUp   = C.CTIPC_MEMBER_UP
	MemberDown = C.CTIPC_MEMBER_DOWN
)

// Forever is the timeout that does not end.
const Forever time.Duration = -1

// Address is where something comes from or goes to.
type Address struct{ c C.ctipc_address }

// Service is one instance of a service, looked up in the whole cluster.
func Service(service, instance uint32) Address {
	return Address{C.ctipc_address{family: 30, form: C.CTIPC_SERVICE, scope: Cluster, a: C.uint32_t(service), b: C.uint32_t(instance)}}
}

// Range is all instances from lower to upper of a service: to bind, and to send to everybody who has bound some of it.
func Range(service, lower, upper uint32, scope int8) Address {
	return Address{C.ctipc_address{family: 30, form: C.CTIPC_SERVICE_RANGE, scope: C.int8_t(scope), a: C.uint32_t(service), b: C.uint32_t(lower), c: C.uint32_t(upper)}}
}

// Port is the number of a socket, if this is a socket's address.
func (a Address) Port() uint32 { return uint32(a.c.a) }

// Node is the node of a socket, if this is a socket's address.
func (a Address) Node() uint32 { return uint32(a.c.b) }

// Message tells what came beside its octets.
type Message struct {
	From      Address
	Event     int
	Error     int // TIPC's code, of a message that has come back and of the end of a connection
	Truncated bool
}

// Socket is a TIPC socket. Its calls may be made by several goroutines at once, but Close by one that knows that no other is in a call.
type Socket struct{ c *C.ctipc_socket }

func failed(code C.int64_t) error { return syscall.Errno(-code) }

func done(code C.int) error {
	if code < 0 {
		return failed(C.int64_t(code))
	}
	return nil
}

func millis(timeout time.Duration) C.int64_t {
	if timeout < 0 {
		return -1
	}
	return C.int64_t((timeout + time.Millisecond - 1) / time.Millisecond)
}

func first(octets []byte) unsafe.Pointer {
	if len(octets) == 0 {
		return nil
	}
	return unsafe.Pointer(&octets[0])
}

// Open opens a socket: on the kernel's TIPC where there is one, else on the tipcd at the default path (""), on the "kernel", or on the tipcd at a path.
func Open(kind int, path string) (*Socket, error) {
	// The reason is kept for the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var where *C.char
	if path != "" {
		where = C.CString(path)
		defer C.free(unsafe.Pointer(where))
	}
	s := &Socket{}
	if C.ctipc_open(C.int(kind), where, &s.c) < 0 {
		return nil, errors.New(C.GoString(C.ctipc_error()))
	}
	return s, nil
}

// Close closes it.
func (s *Socket) Close() {
	C.ctipc_close(s.c)
	s.c = nil
}

// Fd is its descriptor, to be polled only.
func (s *Socket) Fd() int { return int(C.ctipc_fd(s.c)) }

// Bind gives it a range of names.
func (s *Socket) Bind(to Address) error { return done(C.ctipc_bind(s.c, &to.c)) }

// Listen has it take connections.
func (s *Socket) Listen() error { return done(C.ctipc_listen(s.c)) }

// Connect connects it, or sets where messages without an address go.
func (s *Socket) Connect(to Address, timeout time.Duration) error {
	return done(C.ctipc_connect(s.c, &to.c, millis(timeout)))
}

// Accept takes a connection.
func (s *Socket) Accept(timeout time.Duration) (*Socket, Address, error) {
	accepted, from := &Socket{}, Address{}
	if err := done(C.ctipc_accept(s.c, &accepted.c, &from.c, millis(timeout))); err != nil {
		return nil, from, err
	}
	return accepted, from, nil
}

// Send sends a message, or as much of a stream as goes until the timeout; to may be nil on a connected socket.
func (s *Socket) Send(octets []byte, to *Address, timeout time.Duration) (int, error) {
	var where *C.ctipc_address
	if to != nil {
		where = &to.c
	}
	n := C.ctipc_send(s.c, first(octets), C.size_t(len(octets)), where, millis(timeout))
	if n < 0 {
		return 0, failed(n)
	}
	return int(n), nil
}

// Recv receives a message, or what a stream has.
func (s *Socket) Recv(octets []byte, timeout time.Duration) (int, Message, error) {
	var m C.ctipc_message
	n := C.ctipc_recv(s.c, first(octets), C.size_t(len(octets)), &m, millis(timeout))
	if n < 0 {
		return 0, Message{}, failed(n)
	}
	return int(n), Message{Address{m.from}, int(m.event), int(m.error), m.truncated != 0}, nil
}

// Shutdown ends the connection in good order.
func (s *Socket) Shutdown() error { return done(C.ctipc_shutdown(s.c)) }

// LocalAddress is the socket's own address.
func (s *Socket) LocalAddress() (a Address, err error) {
	err = done(C.ctipc_getsockname(s.c, &a.c))
	return
}

// PeerAddress is the other end's.
func (s *Socket) PeerAddress() (a Address, err error) {
	err = done(C.ctipc_getpeername(s.c, &a.c))
	return
}
