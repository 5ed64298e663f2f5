// A server and its clients in one program: an echo service with messages and one with connections; each client is a goroutine.
//
//	go run ./echo [PATH-OF-A-TIPCD]
package main

import (
	"fmt"
	"log"
	"os"
	"sync"
	"syscall"
	"time"

	"crossway/tipc"
)

const (
	service = 1100
	clients = 20
	soon    = time.Minute
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func open(kind int, path string) *tipc.Socket {
	s, err := tipc.Open(kind, path)
	must(err)
	return s
}

func serveConnection(s *tipc.Socket) {
	defer s.Close()
	buf := make([]byte, 100)
	for {
		n, message, err := s.Recv(buf, soon)
		must(err)
		if message.Event == tipc.End {
			return
		}
		_, err = s.Send(buf[:n], nil, soon)
		must(err)
	}
}

func ask(s *tipc.Socket, number int, to *tipc.Address) {
	said, buf := fmt.Sprintf("hello %d", number), make([]byte, 100)
	_, err := s.Send([]byte(said), to, soon)
	must(err)
	n, _, err := s.Recv(buf, soon)
	must(err)
	if string(buf[:n]) != said {
		log.Fatalf("sent %q, received %q", said, buf[:n])
	}
}

func main() {
	path := ""
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	messages, listener := open(tipc.RDM, path), open(tipc.Seqpacket, path)
	must(messages.Bind(tipc.Range(service, 1, 1, tipc.Cluster)))
	must(listener.Listen())
	must(listener.Bind(tipc.Range(service, 2, 2, tipc.Cluster)))
	go func() {
		buf := make([]byte, 100)
		for {
			n, message, err := messages.Recv(buf, tipc.Forever)
			must(err)
			_, err = messages.Send(buf[:n], &message.From, soon)
			must(err)
		}
	}()
	go func() {
		for {
			s, _, err := listener.Accept(tipc.Forever)
			must(err)
			go serveConnection(s)
		}
	}()
	var all sync.WaitGroup
	for number := 0; number < clients; number++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			to := tipc.Service(service, 1)
			s := open(tipc.RDM, path)
			ask(s, number, &to)
			s.Close()
			s = open(tipc.Seqpacket, path)
			must(s.Connect(tipc.Service(service, 2), soon))
			ask(s, number, nil)
			must(s.Shutdown())
			s.Close()
		}(number)
	}
	all.Wait()
	s, nobody := open(tipc.RDM, path), tipc.Service(service+1, 1)
	if _, err := s.Send([]byte("x"), &nobody, soon); err != syscall.EHOSTUNREACH {
		log.Fatalf("a message to nobody: %v", err)
	}
	fmt.Printf("%d clients had their echoes\n", clients)
}
