// The contenders' protocol of Crossway, version 1, for programs in Go: compile this file together with the program's own.
//
// A contender implements Contender and calls Serve; docs/CONTENDERS.md defines what it must do.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"sort"
	"syscall"
	"unsafe"
)

const protocol = 1

// Role is one end of a channel; Dir is a private directory, removed afterwards.
type Role struct {
	Protocol  int    `json:"protocol"`
	Part      string `json:"part"`
	Listens   bool   `json:"listens"`
	SizeBytes int    `json:"size_bytes"`
	Wait      string `json:"wait"`
	Bind      string `json:"bind"`
	Dir       string `json:"dir"`
	ShmPrefix string `json:"shm_prefix"`
}

// Contender is the program to be measured. For byte streams, Receive fills the message; otherwise it returns the
// message's length.
type Contender interface {
	Library() string
	Listen(role *Role) (map[string]string, error)
	Accept() error
	Connect(role *Role, words map[string]string) error
	Send(message []byte) error
	Receive(message []byte) (int, error)
	Close()
}

type order struct {
	Role
	Order    string            `json:"order"`
	Words    map[string]string `json:"words"`
	Sends    bool              `json:"sends"`
	Lengths  []int             `json:"lengths"`
	Path     string            `json:"path"`
	Messages int               `json:"messages"`
	Batch    int               `json:"batch"`
	First    uint64            `json:"first"`
	Payload  *struct {
		Path   string `json:"path"`
		Count  int    `json:"count"`
		Stride int    `json:"stride"`
	} `json:"payload"`
}

type window struct {
	messages, batch, count, stride int
	next, want, checksum           uint64
	at, sent, received, outOfOrder int
	payload, scratch               []byte
	samples                        []int64
}

type answer map[string]any

// The runtime's own clock is monotonic, too, but its zero is unspecified.
func nowNs() int64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// The sum of the 64-bit little-endian words, the last padded with zeros; reads every byte.
func sum(message []byte) uint64 {
	var a, b, c, d uint64
	for len(message) >= 32 {
		a += binary.LittleEndian.Uint64(message)
		b += binary.LittleEndian.Uint64(message[8:])
		c += binary.LittleEndian.Uint64(message[16:])
		d += binary.LittleEndian.Uint64(message[24:])
		message = message[32:]
	}
	total := a + b + c + d
	for ; len(message) >= 8; message = message[8:] {
		total += binary.LittleEndian.Uint64(message)
	}
	for at, byte := range message {
		total += uint64(byte) << (8 * at)
	}
	return total
}

func (w *window) put(contender Contender, size int) {
	message := w.payload[w.at : w.at+size]
	if size >= 8 {
		binary.LittleEndian.PutUint64(message, w.next)
		w.next++
	}
	if w.at += w.stride; w.at == len(w.payload) {
		w.at = 0
	}
	check(contender.Send(message))
	w.sent++
}

func (w *window) take(contender Contender, size int) {
	n, err := contender.Receive(w.scratch)
	check(err)
	if n != size {
		panic(fmt.Errorf("received %d bytes instead of %d", n, size))
	}
	w.checksum += sum(w.scratch)
	if size >= 8 {
		number := binary.LittleEndian.Uint64(w.scratch)
		if number != w.want && w.received > 0 {
			w.outOfOrder++
		}
		w.want = number + 1
	}
	w.received++
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (w *window) work(contender Contender, role *Role) answer {
	size := role.SizeBytes
	start := nowNs()
	last := start
	for i := 0; i < w.messages; i++ {
		switch role.Part {
		case "sender":
			w.put(contender, size)
		case "receiver":
			w.take(contender, size)
		case "client":
			w.put(contender, size)
			w.take(contender, size)
			if (i+1)%w.batch == 0 {
				now := nowNs()
				w.samples = append(w.samples, now-last)
				last = now
			}
		default:
			w.take(contender, size)
			w.put(contender, size)
		}
	}
	end := nowNs()
	return answer{"answer": "done", "start_ns": start, "end_ns": end, "sent": w.sent, "received": w.received,
		"out_of_order": w.outOfOrder}
}

func (w *window) prepare(o *order, role *Role) {
	payload := w.payload
	*w = window{messages: o.Messages, batch: max(o.Batch, 1), next: o.First, scratch: make([]byte, role.SizeBytes)}
	if role.Part == "client" {
		w.samples = make([]int64, 0, w.messages/w.batch)
	}
	if o.Payload != nil {
		text, err := os.ReadFile(o.Payload.Path)
		check(err)
		w.count, w.stride = o.Payload.Count, o.Payload.Stride
		w.payload = append(payload[:0], text[:w.count*w.stride]...)
	}
}

func (w *window) result(part string) answer {
	// Four digits are enough and keep the line short.
	counts := map[int64]int{}
	for _, ns := range w.samples {
		step := int64(1)
		for bits.Len64(uint64(ns/step)) > 13 {
			step *= 10
		}
		counts[ns/step*step]++
	}
	histogram := make([][2]int64, 0, len(counts))
	for ns, n := range counts {
		histogram = append(histogram, [2]int64{ns, int64(n)})
	}
	sort.Slice(histogram, func(a, b int) bool { return histogram[a][0] < histogram[b][0] })
	result := answer{"answer": "result", "histogram": histogram}
	if part != "sender" {
		result["checksum"] = fmt.Sprintf("%x", w.checksum)
	}
	return result
}

func verify(contender Contender, o *order) answer {
	file, err := os.OpenFile(o.Path, os.O_RDWR, 0)
	check(err)
	defer file.Close()
	lengths := []int{}
	for _, length := range o.Lengths {
		message := make([]byte, length)
		if o.Sends {
			_, err = file.Read(message)
			if length > 0 {
				check(err)
			}
			check(contender.Send(message))
			lengths = append(lengths, length)
		} else {
			n, err := contender.Receive(message)
			check(err)
			_, err = file.Write(message[:n])
			check(err)
			lengths = append(lengths, n)
		}
	}
	return answer{"answer": "verified", "lengths": lengths}
}

// Serve obeys orders until the end; the last call of main.
func Serve(contender Contender) {
	answers := json.NewEncoder(os.Stdout)
	// Output that a library prints must not be taken for an answer.
	os.Stdout = os.Stderr
	defer func() {
		if why := recover(); why != nil {
			answers.Encode(answer{"answer": "failed", "reason": fmt.Sprint(why)})
			os.Exit(1)
		}
	}()
	answers.Encode(answer{"answer": "hello", "protocol": protocol, "library": contender.Library(), "checksum": "sum64"})
	var role Role
	var w window
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			os.Exit(1) // The process that gave orders has ended.
		}
		var o order
		check(json.Unmarshal(line, &o))
		opened := answer{"answer": "opened", "facts": answer{}}
		switch o.Order {
		case "begin":
			if o.Protocol != protocol {
				panic(fmt.Errorf("this helper speaks version %d of the protocol", protocol))
			}
			role = o.Role
			words := map[string]string{}
			if role.Listens {
				words, err = contender.Listen(&role)
				check(err)
			}
			answers.Encode(answer{"answer": "offer", "words": words})
		case "connect":
			check(contender.Connect(&role, o.Words))
			answers.Encode(opened)
		case "accept":
			check(contender.Accept())
			answers.Encode(opened)
		case "verify":
			answers.Encode(verify(contender, &o))
		case "prepare":
			w.prepare(&o, &role)
			answers.Encode(answer{"answer": "ready"})
		case "go":
			answers.Encode(w.work(contender, &role))
		case "result":
			answers.Encode(w.result(role.Part))
		case "close":
			contender.Close()
			answers.Encode(answer{"answer": "closed"})
			return
		default:
			panic(fmt.Errorf("unknown order '%s'", o.Order))
		}
	}
}
