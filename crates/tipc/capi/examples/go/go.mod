module crossway/tipc

go 1.21
