package httpcase

import "testing"

func TestExpand(t *testing.T) {
	cases := map[string]struct{ reason, text, want string }{
		"variable": {"a known variable is replaced, an unknown one is not", "{{a}} {{any}}", "b {{any}}"},
		"chars":    {"chars generates letters", `"{{chars:3}}"`, `"aaa"`},
		"repeat":   {"items are numbered and separated by commas", `[{{repeat:2}}{"k": "{{a}}-#"}{{end}}]`, `[{"k": "b-1"},{"k": "b-2"}]`},
		"two":      {"repeat ends at the next end", `{{repeat:1}}x#{{end}} {{repeat:1}}y#{{end}}`, "x1 y1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := expand(tc.text, map[string]string{"a": "b"}); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
