// Go's net package over a UNIX stream socket: blocking calls of goroutines, which the runtime's poller serves.
package main

import (
	"io"
	"net"
	"path/filepath"
	"runtime"
)

type unixSocket struct {
	listener net.Listener
	channel  net.Conn
}

func (u *unixSocket) Library() string {
	return runtime.Version()
}

func (u *unixSocket) Listen(role *Role) (words map[string]string, err error) {
	path := filepath.Join(role.Dir, "s")
	u.listener, err = net.Listen("unix", path)
	return map[string]string{"path": path}, err
}

func (u *unixSocket) Accept() (err error) {
	u.channel, err = u.listener.Accept()
	u.listener.Close()
	return err
}

func (u *unixSocket) Connect(role *Role, words map[string]string) (err error) {
	u.channel, err = net.Dial("unix", words["path"])
	return err
}

func (u *unixSocket) Send(message []byte) error {
	_, err := u.channel.Write(message)
	return err
}

func (u *unixSocket) Receive(message []byte) (int, error) {
	return io.ReadFull(u.channel, message)
}

func (u *unixSocket) Close() {
	u.channel.Close()
}

func main() {
	Serve(&unixSocket{})
}
