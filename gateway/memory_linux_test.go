package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestMemoryOfStreams opens as many streams as the gateway has room for, and sends all but the last
// byte of a request in each. It checks how much memory the process takes. With RATELIMIT_SOAK, it uses
// the default bound of connections, and otherwise a tenth.
func TestMemoryOfStreams(t *testing.T) {
	connections, most := 100, 300 // MB, with room for the race detector
	if os.Getenv("RATELIMIT_SOAK") != "" {
		connections, most = 1024, 640
	}
	for _, size := range []int{256 << 10, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "--dev", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--max-connections", strconv.Itoa(connections))
			cmd.Env = append(os.Environ(), runMain+"=yes")
			var log redistest.Output
			cmd.Stderr = &log
			require(t, cmd.Start())
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			var addr string
			redistest.Eventually(t, "the gateway listens", func() bool {
				found := addresses.FindStringSubmatch(log.String())
				if found != nil {
					addr = found[1]
				}
				return found != nil
			})
			var sending sync.WaitGroup
			for range 2 {
				conn := must[net.Conn](t)(net.Dial("tcp", addr))
				defer func() { _ = conn.Close() }()
				sending.Go(func() { sendUnfinished(conn, connections, size) })
			}
			sending.Wait()
			peak := memory(t, cmd.Process.Pid)
			t.Logf("%d streams took %d MB", 2*connections, peak)
			if peak > most {
				t.Errorf("%d MB, want at most %d; the log:\n%s", peak, most, &log)
			}
		})
	}
}

// memory returns the peak of a process's resident memory, in MB.
func memory(t *testing.T, pid int) int { return memoryOf(t, pid, "VmHWM") }

// memoryOf returns a number of /proc/pid/status, in MB.
func memoryOf(t *testing.T, pid int, name string) int {
	status := must[[]byte](t)(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))
	return must[int](t)(strconv.Atoi(string(regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)[1]))) >> 10
}

// sendUnfinished opens streams in an HTTP/2 connection, one after another. In each, it sends a request
// of `size` bytes without its last one, as fast as the windows of the server allow.
func sendUnfinished(conn net.Conn, streams, size int) {
	frame := func(kind, flags byte, stream int, payload []byte) error {
		head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
		head = binary.BigEndian.AppendUint32(append(head, flags), uint32(stream))
		_, err := conn.Write(append(head, payload...))
		return err
	}
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	_ = frame(4, 0, 0, nil)

	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	window, ended := map[int]int{}, map[int]bool{} // by stream; window 0 is that of the connection
	window[0] = 65535
	go func() {
		in := bufio.NewReader(conn)
		for {
			var head [9]byte
			_, err := io.ReadFull(in, head[:])
			payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
			if err == nil {
				_, err = io.ReadFull(in, payload)
			}
			mu.Lock()
			stream := int(binary.BigEndian.Uint32(head[5:]))
			switch {
			case err != nil:
				ended[0] = true
			case head[3] == 4 && head[4]&1 == 0:
				go func() { _ = frame(4, 1, 0, nil) }()
			case head[3] == 8:
				window[stream] += int(binary.BigEndian.Uint32(payload))
			case head[3] == 3 || head[4]&1 != 0 && head[3] <= 1:
				ended[stream] = true
			}
			changed.Broadcast()
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()

	var headers []byte
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"},
		{":authority", "g"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		headers = append(headers, 0)
		for _, text := range field {
			headers = append(append(headers, byte(len(text))), text...)
		}
	}
	request := binary.BigEndian.AppendUint32([]byte{0}, uint32(size))
	request = append(request, make([]byte, size-1)...)
	left := map[int]int{}
	for i := range streams {
		stream := 2*i + 1
		mu.Lock()
		window[stream] = 65535
		mu.Unlock()
		if frame(1, 4, stream, headers) != nil {
			return
		}
		left[stream] = len(request)
	}
	for len(left) > 0 {
		mu.Lock()
		sent := 0
		send := map[int]int{}
		for stream, n := range left {
			switch n = min(n, window[0], window[stream], 16384); {
			case ended[stream]:
				delete(left, stream)
			case n > 0:
				window[0], window[stream] = window[0]-n, window[stream]-n
				send[stream], sent = n, sent+n
			}
		}
		if sent == 0 {
			if ended[0] || len(left) == 0 {
				mu.Unlock()
				return
			}
			changed.Wait()
		}
		mu.Unlock()
		for stream, n := range send {
			at := len(request) - left[stream]
			if frame(0, 0, stream, request[at:at+n]) != nil {
				return
			}
			if left[stream] -= n; left[stream] == 0 {
				delete(left, stream)
			}
		}
	}
}
