package main

import (
	"strings"
	"testing"
)

var statsBefore = map[string]string{
	"cmdstat_fcall":            "calls=10,usec=100,usec_per_call=10.00,rejected_calls=0,failed_calls=2",
	"cmdstat_get":              "calls=5,usec=7,usec_per_call=1.40,rejected_calls=0,failed_calls=0",
	"cmdstat_config|resetstat": "calls=1,usec=98,usec_per_call=98.00,rejected_calls=0,failed_calls=0",
}

var statsAfter = map[string]string{
	"cmdstat_fcall":  "calls=30,usec=150,usec_per_call=5.00,rejected_calls=0,failed_calls=2",
	"cmdstat_get":    "calls=25,usec=47,usec_per_call=1.88,rejected_calls=0,failed_calls=0",
	"cmdstat_INCRBY": "calls=20,usec=30,usec_per_call=1.50,rejected_calls=0,failed_calls=0,new_field=x",
	"cmdstat_expire": "calls=20,usec=10,usec_per_call=0.50,rejected_calls=1,failed_calls=0",
}

func TestCost(t *testing.T) {
	before := must[commandStats](t)(parseCommandStats(statsBefore))
	after := must[commandStats](t)(parseCommandStats(statsAfter))
	for _, test := range []struct {
		about    string
		commands []string
		n        int
		want     float64
		wrong    string
	}{
		{"one command, without what it calls inside", []string{"fcall"}, 20, 2.5, ""},
		{"two commands are added up, one of them never called before", []string{"get", "incrby"}, 20, 3.5, ""},
		{"another number of calls", []string{"fcall"}, 19, 0, "counted 20 calls of fcall and 19 were sent"},
		{"a command that was not called", []string{"evalsha"}, 20, 0, "counted 0 calls of evalsha"},
		{"a rejected call", []string{"incrby", "expire"}, 20, 0, "1 of 20 calls of expire failed"},
		{"no calls", []string{"fcall"}, 0, 0, "0 decisions"},
	} {
		got, err := cost(before, after, test.commands, test.n, false)
		if test.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%s: the error is %v, want one with %q", test.about, err, test.wrong)
			}
			continue
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %v, %v, want %v", test.about, got, err, test.want)
		}
	}
}

func TestParseCommandStatsRefuses(t *testing.T) {
	for text, wrong := range map[string]string{
		"calls=1,usec=many":  `usec of get is "many"`,
		"calls=,usec=1":      `calls of get is ""`,
		"usec=1":             `calls of get is ""`,
		"calls=1.5,usec=1.0": `calls of get is "1.5"`,
		"calls=1,usec=1,rejected_calls=0,failed_calls=no": `failed_calls of get is "no"`,
	} {
		if _, err := parseCommandStats(map[string]string{"cmdstat_get": text}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: the error is %v, want one with %q", text, err, wrong)
		}
	}
}
