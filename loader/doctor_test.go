package loader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/doctor"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// findings returns one line for each finding, with its check, node and class. It also returns one
// line for each check that Doctor could not make, with the missing permission.
func findings(d doctor.Diagnosis) string {
	var b strings.Builder
	for _, f := range d.Findings {
		for _, addr := range f.Addrs {
			b.WriteString(found(f.Check, addr, classOf(f.Err)))
		}
		if len(f.Addrs) == 0 {
			b.WriteString(found(f.Check, "", classOf(f.Err)))
		}
		if f.Found == "" || f.Means == "" || f.Do == "" {
			fmt.Fprintf(&b, "  incomplete: %+v\n", f)
		}
	}
	for _, u := range d.Unchecked {
		fmt.Fprintf(&b, "unchecked: %s\n", u.Why[strings.LastIndex(u.Why, " ")+1:])
	}
	return b.String()
}

// found returns the line for one finding, or "" if check is "".
func found(check, addr string, class error) string {
	if check == "" {
		return ""
	}
	return fmt.Sprintf("%s %s: %v\n", check, addr, class)
}

// classOf returns the most specific class of an error.
func classOf(err error) error {
	var failed *nodes.Error
	var dial *dialing.Error
	if errors.As(err, &dial) && dial.Class != nil {
		return dial.Class
	} else if errors.As(err, &failed) {
		return failed.Class
	}
	return nil
}

func TestDoctor(t *testing.T) {
	addr, _ := startRedis(t, "--appendonly", "yes")
	rdb := at(t, addr)
	ctx := t.Context()
	l := newLoader(t, rdb)
	diagnose := func(rdb *redis.Client) string {
		t.Helper()
		return findings(must[doctor.Diagnosis](t)(doctor.Examine(ctx, rdb, time.Minute, nil)))
	}
	if got, want := diagnose(rdb), found("library", addr, nodes.ErrNoLibrary); got != want {
		t.Errorf("before a deployment: %s\nwant\n%s", got, want)
	}
	must[loader.Report](t)(l.Deploy(ctx, build(t), loader.Options{}))
	if got := diagnose(rdb); got != "" {
		t.Errorf("of a healthy server:\n%s", got)
	}
	require(t, rdb.ConfigSet(ctx, "maxmemory-policy", "volatile-ttl").Err())
	if got := diagnose(rdb); got != "" {
		t.Errorf("without maxmemory nothing is evicted:\n%s", got)
	}
	for name, value := range map[string]string{"maxmemory": "1000000000", "appendonly": "no"} {
		require(t, rdb.ConfigSet(ctx, name, value).Err())
	}
	if got, want := diagnose(rdb), found("persistence", addr, doctor.ErrNotPersistent)+found("eviction", addr, nil); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	mustRun(t, rdb, "ACL", "SETUSER", "half", "on", ">x", "+function|list", "+function|load", "+time")
	half := connect(t, redis.Options{Addr: addr, Username: "half", Password: "x"})
	if got, want := diagnose(half), found("rights", addr, nodes.ErrNoPermission)+
		"unchecked: +info\nunchecked: +function|stats\nunchecked: +wait\nunchecked: +fcall_ro|ratelimit_info\nunchecked: +role\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got, want := diagnose(at(t, "127.0.0.1:1")), found("reach", "127.0.0.1:1", nodes.ErrUnreachable); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := doctor.Examine(done, rdb, time.Minute, nil); err == nil {
		t.Error("no error of a context that has ended")
	}
}

// TestDoctorOfTheSick simulates problems with fake servers: clocks that differ, replicas that lag,
// and saves that fail.
func TestDoctorOfTheSick(t *testing.T) {
	text := build(t).Text()
	sick := func(ahead time.Duration, replication string) string {
		return startFake(t, func(command string) string {
			switch {
			case command == "TIME":
				now := time.Now().Add(ahead)
				return resp(list{fmt.Sprint(now.Unix()), fmt.Sprint(now.Nanosecond() / 1000)})
			case command == "INFO":
				return resp("aof_enabled:1\r\naof_last_write_status:err\r\n" + replication)
			case command == "ROLE":
				return resp(list{"master", 0, list{}})
			case strings.HasPrefix(command, "FUNCTION LIST"):
				return library("ratelimit", text)
			case strings.HasPrefix(command, "FCALL_RO RATELIMIT_INFO 0"):
				return resp(list{"contract", 1})
			}
			return healthy(command)
		})
	}
	one := sick(0, "role:master\r\nmaster_repl_offset:5000000\r\n"+
		"slave0:ip=10.0.0.1,port=1,state=wait_bgsave,offset=0,lag=0\r\nslave1:ip=10.0.0.1,port=2,state=online,offset=5000000,lag=60\r\n"+
		"slave2:ip=10.0.0.1,port=3,state=online,offset=1000,lag=0\r\nslave3:ip=10.0.0.1,port=4,state=online,offset=5000000,lag=1\r\n")
	two := sick(time.Hour, "role:slave\r\nmaster_host:10.0.0.9\r\nmaster_port:6379\r\nmaster_link_status:down\r\nslave_read_only:0\r\n")
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"1": one, "2": two}, HeartbeatFn: func(context.Context, *redis.Client) bool { return true }})
	t.Cleanup(func() { _ = ring.Close() })
	d := must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), ring, time.Minute, nil))
	for _, want := range []struct{ check, addr, value string }{
		{"clock", two, one}, {"persistence", one, "aof_last_write_status is err"}, {"persistence", two, "aof_last_write_status is err"},
		{"replicas", one, "10.0.0.1:1 "}, {"replicas", one, "10.0.0.1:2 "}, {"replicas", one, "10.0.0.1:3 "}, {"replicas", two, "10.0.0.9:6379"}, {"replicas", two, "replica-read-only"},
	} {
		if !slices.ContainsFunc(d.Findings, func(f doctor.Finding) bool {
			return f.Check == want.check && slices.Contains(f.Addrs, want.addr) && strings.Contains(f.Found, want.value)
		}) {
			t.Errorf("%v is not among %+v", want, d.Findings)
		}
	}
	if len(d.Findings) != 7 { // the findings about persistence of the two servers are merged
		t.Errorf("%+v", d.Findings)
	}
}

func TestDoctorOfACluster(t *testing.T) {
	addrs, stop := startCluster(t, 3, redis.Options{})
	ctx := t.Context()
	require(t, at(t, addrs[1]).ClusterDelSlotsRange(ctx, 6000, 6009).Err())
	stop[2]()
	d := must[doctor.Diagnosis](t)(doctor.Examine(ctx, at(t, addrs[1]), time.Minute, nil))
	got := findings(d)
	for _, want := range []string{found("coverage", "", doctor.ErrSlots), found("reach", addrs[2], nodes.ErrUnreachable), found("persistence", addrs[0], doctor.ErrNotPersistent)} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if d.Findings[0].Check != "reach" || !strings.Contains(d.Findings[1].Found, " 10 of 16384 slots (6000-6009)") {
		t.Errorf("a cause is not in front of what it causes: %+v", d.Findings)
	}
}

// If the primaries run different builds, Doctor reports which primaries run which build.
func TestDoctorOfMixedBuilds(t *testing.T) {
	f := startThree(t, redis.Options{})
	for i, text := range []loader.Text{buildA, buildB, buildB} {
		put(t, f.addrs[i], string(text))
		mustRun(t, at(t, f.addrs[i]), "CONFIG", "SET", "appendonly", "yes")
	}
	d := must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), f.ring, time.Minute, nil))
	groups := f.addrs[0] + " (0.1.0 build 00000000000a); " + f.addrs[1] + " (0.1.0 build 00000000000b), " + f.addrs[2] + " (0.1.0 build 00000000000b)"
	if findings(d) != found("library", "", doctor.ErrMixedBuilds) || !strings.Contains(d.Findings[0].Found, groups) {
		t.Errorf("%+v", d.Findings)
	}
}
