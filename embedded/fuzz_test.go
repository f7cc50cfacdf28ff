package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// requests is the seed corpus.
var requests = []string{
	"PING\r\n*0\r\n", "*1\r\n$4\r\nPING\r\n", "*-1\r\nPING\n", "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "*1\r\n$536870912\r\nx", "*2147483647\r\n$1\r\na\r\n",
	"SET k \"a\\n\\x41\\\"\" EX 10\r\nGET k\r\n", "ECHO 'it\\'s'\r\n", "ECHO \"a\"b\r\n", "MULTI\r\nINCR n\r\nINCR n\r\nEXEC\r\n", "HELLO 3\r\nHGETALL h\r\n",
	"FUNCTION LOAD \"#!lua name=t\\nredis.register_function('g', function(keys) return redis.call('INCR', keys[1]) end)\"\r\nFCALL g 1 k\r\nFCALL g -1 k\r\n",
	"WATCH k\r\nBLPOP q 0.001\r\nZADD z 1.5 m nan n\r\nZRANGE z 0 -1 WITHSCORES\r\n", "LPOS l a COUNT 9223372036854775807\r\nSETRANGE s 9223372036854775807 x\r\n",
	"SADD s a b\r\nSRANDMEMBER s -9223372036854775808\r\nSPOP s 99999999999\r\n", "XADD x * a 1\r\nXREAD COUNT 1 STREAMS x 0\r\nSCAN 0 COUNT 5 MATCH [a\r\n",
	"EXPIRE k 9223372036854775807\r\nCOPY a b REPLACE\r\nRENAME a b\r\nPTTL b\r\nCLIENT ID\r\nINFO\r\nCONFIG GET *\r\nCOMMAND\r\nRESET\r\nQUIT\r\n",
}

// readAll reads all commands, and returns them and the error that ended reading.
func readAll(r io.Reader) (commands [][]string, err error) {
	in := bufio.NewReaderSize(r, 4<<10)
	for {
		words, err := readCommand(in)
		if err != nil {
			return commands, err
		}
		commands = append(commands, words)
	}
}

// FuzzReadCommand checks that parsing does not depend on how the input is split. Commands must not
// be longer than the input, and memory use must be proportional to the input. A command that is
// encoded as an array must parse to the same command.
func FuzzReadCommand(f *testing.F) {
	for _, request := range requests {
		f.Add([]byte(request))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := allocated()
		commands, err := readAll(bytes.NewReader(data))
		if took := allocated() - before; took > uint64(64*len(data)+64<<10) {
			t.Errorf("%d bytes took %d bytes of memory", len(data), took)
		}
		var bad protocolError
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &bad) {
			t.Errorf("ended with %v", err)
		}
		again, errAgain := readAll(iotest.OneByteReader(bytes.NewReader(data)))
		if fmt.Sprint(again) != fmt.Sprint(commands) || fmt.Sprint(errAgain) != fmt.Sprint(err) {
			t.Errorf("at once %q, %v; byte by byte %q, %v", commands, err, again, errAgain)
		}
		size := 0
		for _, words := range commands {
			var b []byte
			b = appendHead(b, '*', int64(len(words)))
			for _, word := range words {
				size += len(word)
				b = appendReply(b, word, false, maxReply)
			}
			if same, _ := readAll(bytes.NewReader(b)); len(same) != 1 || !slices.Equal(same[0], words) {
				t.Errorf("%q is read again as %q", words, same)
			}
		}
		if size > len(data) {
			t.Errorf("%d bytes are words of %d", len(data), size)
		}
	})
}

// FuzzConnection checks that after any input from a client, the server still serves the next
// client.
func FuzzConnection(f *testing.F) {
	for _, request := range requests {
		f.Add([]byte(request))
	}
	s := Run(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		here, there := net.Pipe()
		s.admit(there)
		read := make(chan struct{})
		go func() {
			defer close(read)
			io.Copy(io.Discard, here)
		}()
		here.Write(data)
		here.Close()
		<-read
		await(t, func() bool { return len(s.sessions) == 0 }, s)
		if _, err := s.Do("FLUSHALL"); err != nil {
			t.Error(err)
		}
	})
}

// arguments lists the arguments of the generated commands.
var arguments = strings.Fields(`k l h z s x q 0 1 -1 2 -2 10 1000 9223372036854775807 -9223372036854775808 99999999999 -99999999999 4194304 -4194304 4194305 1.5 nan inf
	-inf 1e400 1e100000000 (1 [a - + * $ > 0-0 0-1 5-5 [a-c a ab m EX PX EXAT NX XX GT LT CH INCR GET KEEPTTL COUNT MATCH RANK MAXLEN MINID ~ = LIMIT WITHSCORES
	WITHVALUES BYSCORE BYLEX REV LEFT RIGHT BEFORE AFTER MIN MAX AGGREGATE SUM WEIGHTS STREAMS GROUP CREATE MKSTREAM BLOCK IDLE TIME FORCE JUSTID BIT
	BYTE AND OR NOT XOR STORE REPLACE SETNAME LOAD LIST LIBRARYNAME WITHCODE FROMLONLAT FROMMEMBER BYRADIUS BYBOX ASC DESC km f g`)

// FuzzCommands checks that a command with any arguments gets a reply, and that the server still
// serves the next client. The input bytes select a command's name, the number of its arguments, and
// the arguments.
func FuzzCommands(f *testing.F) {
	s := Run(f)
	names := slices.Sorted(maps.Keys(s.commands))
	for i := range names {
		f.Add([]byte{byte(i), 3, 0, 8, 9, byte(i), 1, 0})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := s.newSession(nil)
		for _, setup := range []string{"FLUSHALL", "SET k 12", "RPUSH l a b a", "HSET h a 1 ab x", "ZADD z 1 a 2 ab", "SADD s a ab", "XADD x 5-5 a 1", "PFADD q a"} {
			s.run(c, strings.Fields(setup))
		}
		for len(data) >= 2 {
			words := []string{names[int(data[0])%len(names)]}
			n := min(int(data[1])%8, len(data)-2)
			for _, b := range data[2 : 2+n] {
				words = append(words, arguments[int(b)%len(arguments)])
			}
			data = data[2+n:]
			if cmd := s.lookup(words[0]); cmd.arityOK(len(words)) && len(cmd.keys(words[1:])) >= len(words) {
				t.Errorf("%q has keys %q", words, cmd.keys(words[1:]))
			}
			began := time.Now()
			if e, ok := s.run(c, words).(engine.Error); ok && strings.Contains(string(e), "cannot read a reply") {
				t.Errorf("%q: %s", words, e)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("%q took %s", words, took)
			}
		}
	})
}
