package examples

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestTheDocumentsOnTheEmbeddedServer(t *testing.T) {
	all, err := All("../..")
	if err != nil {
		t.Fatal(err)
	}
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()))
	for _, example := range all {
		t.Run(example.Name, func(t *testing.T) {
			if err := example.Run(t.Context(), "../..", "redis://"+server.Addr()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnOutputThatDiffersIsAnError(t *testing.T) {
	all, err := All("../..")
	if err != nil {
		t.Fatal(err)
	}
	server := embedded.Run(t) // without the library
	for _, example := range all {
		if err := example.Run(t.Context(), "../..", "redis://"+server.Addr()); err == nil {
			t.Errorf("%s passed on a server without the library", example.Name)
		}
	}
}
