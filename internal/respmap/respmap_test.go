package respmap

import (
	"reflect"
	"testing"
)

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		reply any
		want  map[string]any
	}{
		{[]any{"a", int64(1), "b", nil, "a", int64(2)}, map[string]any{"a": int64(2), "b": nil}},
		{map[any]any{"a": int64(1), int64(2): "b"}, map[string]any{"a": int64(1)}},
		{[]any{}, map[string]any{}},
		{[]any{"a"}, nil},
		{[]any{int64(1), "a"}, nil},
		{"a", nil},
		{nil, nil},
	} {
		if got := Of(tt.reply); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.reply, got, tt.want)
		}
	}
}
