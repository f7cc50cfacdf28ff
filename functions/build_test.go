package functions

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestTheCheckedInTextIsWhatTheSourcesBuild(t *testing.T) {
	build := redistest.Must[Build](t)(New())
	if Source() != build.Text() {
		t.Fatal("functions/ratelimit.lua is stale: run make generate")
	}
	if build.ID() != BuildID() || build.Version() != Version() {
		t.Errorf("build says %s %s, the package %s %s", build.Version(), build.ID(), Version(), BuildID())
	}
	if !strings.HasPrefix(build.Text(), "#!lua name=ratelimit\n") {
		t.Errorf("line 1 is %q", strings.SplitN(build.Text(), "\n", 2)[0])
	}
	if len(build.Digest()) != 64 || build.Digest() != Digest(Source()) {
		t.Errorf("digest %q", build.Digest())
	}
}

func joining(files fstest.MapFS) func() (string, error) {
	return func() (string, error) { return join(files, withoutComments) }
}

func TestTheBuildIDFollowsTheSources(t *testing.T) {
	sources := func(verb string) func() (string, error) {
		return joining(fstest.MapFS{
			"src/00_library.lua":   {Data: []byte("local v, b = '@VERSION@', '@BUILD_ID@'\nlocal POLICIES = {--[[@POLICIES@]]}\n")},
			"src/algorithms/a.lua": {Data: []byte("-- a\n")},
			"src/verbs/v.lua":      {Data: []byte(verb)},
		})
	}
	one := redistest.Must[Build](t)(build(sources("one()"), nil))
	same, _ := build(sources("-- a comment\n\n  -- and another\none() -- after code\n\n"), nil)
	other, _ := build(sources("two()"), nil)
	if one.ID() != same.ID() || one.Text() != same.Text() {
		t.Error("the same code gave two builds")
	}
	if one.ID() == other.ID() || one.Digest() == other.Digest() {
		t.Error("different sources gave one build id")
	}
	if !strings.Contains(one.Text(), "local v, b = '"+Version()+"', '"+one.ID()+"'") {
		t.Errorf("the text does not carry its version and build id:\n%s", one.Text())
	}
	if !strings.Contains(one.Text(), "do\none()\nend") {
		t.Errorf("a verb has no scope of its own:\n%s", one.Text())
	}
}

func TestNilOption(t *testing.T) {
	if _, err := New(nil); err == nil || err.Error() != "functions: an option is nil; leave it out" {
		t.Error(err)
	}
}

func TestABuildWithoutItsMarksIsRefused(t *testing.T) {
	_, err := build(joining(fstest.MapFS{
		"src/00_library.lua":   {Data: []byte("local v = '@VERSION@' --[[@POLICIES@]]\n")},
		"src/algorithms/a.lua": {Data: []byte("-- a\n")},
		"src/verbs/v.lua":      {Data: []byte("-- v\n")},
	}), nil)
	if err == nil || err.Error() != "functions: the sources hold @BUILD_ID@ 0 times, want once" {
		t.Errorf("got %v", err)
	}
	if _, err := build(joining(fstest.MapFS{"src/00_library.lua": {Data: []byte("")}}), nil); err == nil {
		t.Error("sources without algorithms were built")
	}
}
