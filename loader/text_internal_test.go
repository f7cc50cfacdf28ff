package loader

import "testing"

func TestNewer(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"0.2.0", "0.1.9", true}, {"0.10.0", "0.9.0", true}, {"1.0.0", "0.99.99", true}, {"0.1.0", "0.1.0", false}, {"0.1.0", "0.2.0", false},
		{"1.0.0", "1.0.0-rc.1", true}, {"1.0.0-rc.1", "1.0.0", false}, {"1.0.0-rc.2", "1.0.0-rc.1", true}, {"1.0.0-rc.10", "1.0.0-rc.9", true},
		{"1.0.0+x", "1.0.0", false},
		{"", "0.1.0", false}, {"0.1.0", "", false}, {"one", "0.1.0", false}, {"2", "0.1.0", true}, {"-1.0.0", "0.0.1", false},
	} {
		if got := newer(tt.a, tt.b); got != tt.want {
			t.Errorf("newer(%q, %q) is %v", tt.a, tt.b, got)
		}
	}
}

func TestLeaseIsOver(t *testing.T) {
	const at, minute = 1_700_000_000_000, 60_000
	l := readLease(leasePrefix+"x", lease{name: leasePrefix + "x", who: `ann "the\ admin"`, fromMS: at, untilMS: at + 30_000}.text())
	if l.who != `ann "the\ admin"` {
		t.Errorf("held by %s", l.who)
	}
	for now, want := range map[int64]bool{
		at: false, at + 30_000: false, at + 30_001: true, at - minute: false, at - minute - 1: true, at + 1000*24*60*minute: true, 0: true,
	} {
		if got := l.isOver(now); got != want {
			t.Errorf("%d ms after its beginning it is over: %v", now-at, got)
		}
	}
	if !readLease("x", "what is this").isOver(at) {
		t.Error("a lease that cannot be read lasts for ever")
	}
}
