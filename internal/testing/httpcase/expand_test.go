package httpcase

import "testing"

func TestExpand(t *testing.T) {
	cases := map[string]struct{ reason, text, want string }{
		"variable": {"a known variable is replaced, another stays", "{{a}} {{any}}", "b {{any}}"},
		"chars":    {"so many letters", `"{{chars:3}}"`, `"aaa"`},
		"repeat":   {"items are numbered and divided by commas", `[{{repeat:2}}{"k": "{{a}}-#"}{{end}}]`, `[{"k": "b-1"},{"k": "b-2"}]`},
		"two":      {"a repetition ends at its own end", `{{repeat:1}}x#{{end}} {{repeat:1}}y#{{end}}`, "x1 y1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := expand(tc.text, map[string]string{"a": "b"}); got != tc.want {
				t.Errorf("%s: %q, not %q", tc.reason, got, tc.want)
			}
		})
	}
}
