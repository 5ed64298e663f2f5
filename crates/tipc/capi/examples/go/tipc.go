// Package tipc provides TIPC sockets over the kernel's AF_TIPC or a tipcd, through Crossway's C library. Go programs need it because they make
// their system calls themselves, so that `crossway tipc run` cannot intercept them. Build with cgo and pkg-config (crossway-tipc).
//
// A blocking call occupies an operating system thread. A program with a large number of sockets should poll their descriptors (Socket.Fd) and make calls with a timeout of 0.
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

// Scopes of a binding; a negative scope withdraws the binding.
const (
	Cluster = C.CTIPC_CLUSTER
	Node    = C.CTIPC_NODE
)

// Kinds of event reported by Recv.
const (
	Data       = C.CTIPC_DATA
	Returned   = C.CTIPC_RETURNED
	End        = C.CTIPC_END
	MemberUp   = C.CTIPC_MEMBER_UP
	MemberDown = C.CTIPC_MEMBER_DOWN
)

// Forever is a timeout that never expires.
const Forever time.Duration = -1

// Address is the source or destination of a message or connection.
type Address struct{ c C.ctipc_address }

// Service returns the address of one instance of a service, looked up in the whole cluster.
func Service(service, instance uint32) Address {
	return Address{C.ctipc_address{family: 30, form: C.CTIPC_SERVICE, scope: Cluster, a: C.uint32_t(service), b: C.uint32_t(instance)}}
}

// Range returns the address of all instances of a service from lower to upper. Use it to bind a socket to them, or to multicast to every socket bound to any of them.
func Range(service, lower, upper uint32, scope int8) Address {
	return Address{C.ctipc_address{family: 30, form: C.CTIPC_SERVICE_RANGE, scope: C.int8_t(scope), a: C.uint32_t(service), b: C.uint32_t(lower), c: C.uint32_t(upper)}}
}

// Port returns the port number; valid only if this is a socket's address.
func (a Address) Port() uint32 { return uint32(a.c.a) }

// Node returns the node's address; valid only if this is a socket's address.
func (a Address) Node() uint32 { return uint32(a.c.b) }

// Message describes received data.
type Message struct {
	From      Address
	Event     int
	Error     int // TIPC error code of a returned message or of the end of a connection
	Truncated bool
}

// Socket is a TIPC socket. Several goroutines may use it at the same time, but Close must be called only when no other call is in progress.
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

func first(data []byte) unsafe.Pointer {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Pointer(&data[0])
}

// Open opens a socket. With path "", it uses the kernel's TIPC if there is one, otherwise the tipcd at the default path; with "kernel", the kernel's TIPC; otherwise the tipcd at path.
func Open(kind int, path string) (*Socket, error) {
	// The reason of a failure is stored per thread.
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

// Close closes the socket.
func (s *Socket) Close() {
	C.ctipc_close(s.c)
	s.c = nil
}

// Fd returns the socket's file descriptor; use it for polling only.
func (s *Socket) Fd() int { return int(C.ctipc_fd(s.c)) }

// Bind binds the socket to a service range.
func (s *Socket) Bind(to Address) error { return done(C.ctipc_bind(s.c, &to.c)) }

// Listen makes the socket accept connections.
func (s *Socket) Listen() error { return done(C.ctipc_listen(s.c)) }

// Connect connects the socket; on a connectionless socket, it sets the default destination.
func (s *Socket) Connect(to Address, timeout time.Duration) error {
	return done(C.ctipc_connect(s.c, &to.c, millis(timeout)))
}

// Accept accepts a connection.
func (s *Socket) Accept(timeout time.Duration) (*Socket, Address, error) {
	accepted, from := &Socket{}, Address{}
	if err := done(C.ctipc_accept(s.c, &accepted.c, &from.c, millis(timeout))); err != nil {
		return nil, from, err
	}
	return accepted, from, nil
}

// Send sends a message, or as much of a stream as is accepted before the timeout; to may be nil on a connected socket.
func (s *Socket) Send(data []byte, to *Address, timeout time.Duration) (int, error) {
	var where *C.ctipc_address
	if to != nil {
		where = &to.c
	}
	n := C.ctipc_send(s.c, first(data), C.size_t(len(data)), where, millis(timeout))
	if n < 0 {
		return 0, failed(n)
	}
	return int(n), nil
}

// Recv receives a message, or the available data of a stream.
func (s *Socket) Recv(data []byte, timeout time.Duration) (int, Message, error) {
	var m C.ctipc_message
	n := C.ctipc_recv(s.c, first(data), C.size_t(len(data)), &m, millis(timeout))
	if n < 0 {
		return 0, Message{}, failed(n)
	}
	return int(n), Message{Address{m.from}, int(m.event), int(m.error), m.truncated != 0}, nil
}

// Shutdown shuts the connection down: the peer still reads the data in flight, then the end of the connection.
func (s *Socket) Shutdown() error { return done(C.ctipc_shutdown(s.c)) }

// LocalAddress returns the socket's own address.
func (s *Socket) LocalAddress() (a Address, err error) {
	err = done(C.ctipc_getsockname(s.c, &a.c))
	return
}

// PeerAddress returns the address of the connection's other end.
func (s *Socket) PeerAddress() (a Address, err error) {
	err = done(C.ctipc_getpeername(s.c, &a.c))
	return
}
