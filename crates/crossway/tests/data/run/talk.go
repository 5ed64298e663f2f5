// A server and a client in Go. "serve" prints its port and answers COUNT connections with what they have sent; "talk PORT" sends
// a million bytes and prints what it observes.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
)

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	if os.Args[1] == "serve" {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		check(err)
		fmt.Println(listener.Addr().(*net.TCPAddr).Port)
		count, _ := strconv.Atoi(os.Args[2])
		var all sync.WaitGroup
		for ; count > 0; count-- {
			conn, err := listener.Accept()
			check(err)
			all.Add(1)
			go func() {
				_, err := io.Copy(conn, conn)
				check(err)
				conn.Close()
				all.Done()
			}()
		}
		all.Wait()
		return
	}
	conn, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
	check(err)
	tcp := conn.(*net.TCPConn)
	own, peer := conn.LocalAddr().(*net.TCPAddr), conn.RemoteAddr().String()
	fmt.Println(own.IP, own.Port != 0, peer == "127.0.0.1:"+os.Args[2])
	fmt.Println(tcp.SetNoDelay(true), tcp.SetKeepAlive(true))
	sent := bytes.Repeat([]byte("0123456789"), 100000)
	go func() {
		_, err := conn.Write(sent)
		check(err)
		check(tcp.CloseWrite())
	}()
	got, err := io.ReadAll(conn)
	fmt.Println(len(got), bytes.Equal(got, sent), err)
}
