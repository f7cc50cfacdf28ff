// Package freeport finds ports for the servers that tests start.
package freeport

import (
	"errors"
	"net"
	"strconv"
)

// Find finds a port of 127.0.0.1 that is free, and whose port of the cluster bus, 10000 above, is free too: a node of a
// cluster ends where it is not.
func Find() (int, error) {
	for range 1000 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := ln.Addr().(*net.TCPAddr).Port
		bus, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port+10000))
		_ = ln.Close()
		if err == nil {
			return port, bus.Close()
		}
	}
	return 0, errors.New("no port is free whose port of the cluster bus is free too")
}
