package embedded

import (
	"fmt"
	"strings"
	"testing"
)

// TestRefused checks that the embedded server rejects all of these calls with an error that says
// why. Redis would run most of them.
func TestRefused(t *testing.T) {
	s := Run(t)
	for _, tc := range []struct{ body, want string }{
		{"return redis.call('GET', 'other')", "ERR Script attempted to access a key that it was not given: GET on 'other', which is not among the keys of this call. Pass every key in KEYS: Redis Cluster and ACLs rely on it"},
		{"return redis.call('MGET', keys[1], 'other')", "ERR Script attempted to access a key that it was not given: MGET on 'other'"},
		{"return redis.call('SINTERCARD', 2, keys[1], 'other')", "ERR Script attempted to access a key that it was not given: SINTERCARD on 'other'"},
		{"return redis.call('ZUNIONSTORE', 'dest', 1, keys[1])", "ERR Script attempted to access a key that it was not given: ZUNIONSTORE on 'dest'"},
		{"return redis.call('XREAD', 'COUNT', 1, 'STREAMS', keys[1], 'other', 0, 0)", "ERR Script attempted to access a key that it was not given: XREAD on 'other'"},
		{"return redis.call('BITOP', 'AND', keys[1], 'other')", "ERR Script attempted to access a key that it was not given: BITOP on 'other'"},
		{"return redis.call('OBJECT', 'IDLETIME', 'other')", "ERR Script attempted to access a key that it was not given: OBJECT on 'other'"},
		{"return redis.call('KEYS', '*')", "ERR the embedded server refuses KEYS in a function: it reads all keys, and a function may only touch the keys it is given"},
		{"return redis.call('FLUSHALL')", "ERR the embedded server refuses FLUSHALL in a function: it deletes keys"},
		{"return redis.call('DUMP', keys[1])", "ERR this command is not supported by the embedded server: its payloads would not be those of Redis"},
		{"return redis.call('OBJECT', 'ENCODING', keys[1])", "ERR unknown subcommand 'encoding'. Try OBJECT HELP."},
		{"return redis.call('MEMORY', 'USAGE', keys[1])", "ERR this command is not supported by the embedded server: its keys do not take the memory that they take in Redis"},
		{"return redis.pcall('FUNCTION', 'LOAD', 'x')", "ERR This Redis command is not allowed from script"},
		{"error({})", "ERR function f raised a table without a text in its field err"},
	} {
		require(t, s.Load(lib(tc.body)))
		_, err := s.Do("FCALL", "f", 1, "k")
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s:\n got %v\nwant %s", tc.body, err, tc.want)
		}
	}
}

func TestDeclaredKeysAreAccepted(t *testing.T) {
	s := Run(t, WithLibrary(lib(`
		redis.call('SET', keys[1], 1)
		redis.call('SADD', keys[2], 'x')
		redis.call('SUNIONSTORE', keys[3], keys[2])
		redis.call('ZADD', keys[4], 1, 'm')
		redis.call('ZUNIONSTORE', keys[5], 2, keys[4], keys[2])
		return {redis.call('EXISTS', unpack(keys)), redis.call('SINTERCARD', 2, keys[2], keys[3])}`)))
	r, err := s.Do("FCALL", "f", 5, "a", "b", "c", "d", "e")
	if err != nil || fmt.Sprint(r) != "[5 1]" {
		t.Errorf("%v, %v", r, err)
	}
}

// TestStateLastsBetweenCallsAndNotBetweenLoads checks that a library's code runs once for each
// load, and that the library's functions share its variables.
func TestStateLastsBetweenCallsAndNotBetweenLoads(t *testing.T) {
	text := "#!lua name=t\nlocal n, seen = 0, {}\nredis.register_function('f', function(keys, args) n = n + 1; seen[args[1]] = true; local k = 0; for _ in pairs(seen) do k = k + 1 end; return {n, k} end)"
	s := Run(t, WithLibrary(text))
	for i, want := range []string{"[1 1]", "[2 1]", "[3 2]"} {
		if r, err := s.Do("FCALL", "f", 0, "ab"[i/2:i/2+1]); err != nil || fmt.Sprint(r) != want {
			t.Errorf("call %d: %v, %v; want %s", i, r, err, want)
		}
	}
	require(t, s.Load(text))
	if r, err := s.Do("FCALL", "f", 0, "a"); err != nil || fmt.Sprint(r) != "[1 1]" {
		t.Errorf("after a load: %v, %v", r, err)
	}
}

func TestFunctionsUseTheCallersDatabase(t *testing.T) {
	s := Run(t, WithLibrary(lib("return redis.call('INCR', keys[1])")))
	conn := s.newSession(nil)
	s.run(conn, []string{"SELECT", "3"})
	s.run(conn, []string{"FCALL", "f", "1", "n"})
	if r := s.run(conn, []string{"GET", "n"}); r != "1" {
		t.Errorf("in database 3: %v", r)
	}
	if r, err := s.Do("GET", "n"); err != nil || r != nil {
		t.Errorf("in database 0: %v, %v", r, err)
	}
}
