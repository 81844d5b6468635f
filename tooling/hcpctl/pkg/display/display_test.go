package display_test

import (
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// TestSafeRemovesControlCharacters checks that text of customers cannot control the terminal.
func TestSafeRemovesControlCharacters(t *testing.T) {
	const said = "up\x1b[2J\x1b]0;title\x07 \u009b31m \u202ederil \u2066iso"
	var out strings.Builder
	must.Do(t, display.Table(display.Safe(&out), []string{"NAME", "MESSAGE"}, [][]string{{"a", said}, {"b", "zwölf\tdreizehn\r\nvierzehn"}, {"c", ""}}))
	const want = "NAME  MESSAGE\na     up�[2J�]0;title� �31m �deril �iso\nb     zwölf dreizehn  vierzehn\nc     -\n"
	if out.String() != want {
		t.Errorf("shown as %q, want %q", out.String(), want)
	}
	var drawn strings.Builder
	lines := []display.Line{{Key: "k", Text: said}}
	display.NewLive(&drawn).Draw(lines)
	if strings.ContainsAny(drawn.String(), "\x1b\x07\u009b\u202e") || lines[0].Text != said {
		t.Errorf("drawn as %q", drawn.String())
	}
}

// TestSafeKeepsText checks that other text is written unchanged and that Write returns its full length.
func TestSafeKeepsText(t *testing.T) {
	const text = "line\n\tindented: 界 🦀 é “quoted”\n"
	var out strings.Builder
	n, err := display.Safe(&out).Write([]byte(text))
	if err != nil || n != len(text) || out.String() != text {
		t.Errorf("%d %v %q", n, err, out.String())
	}
}

// TestListPrintsHeader checks that the headers come from the columns of a row, also without one.
func TestListPrintsHeader(t *testing.T) {
	row := func(name string) display.Row { return display.Row{{"NAME", name}, {"AGE", ""}} }
	for want, items := range map[string][]string{"NAME  AGE\n": nil, "NAME  AGE\na     -\n": {"a"}} {
		var out strings.Builder
		if err := display.List(&out, items, row); err != nil || out.String() != want {
			t.Errorf("%v: %q, %v", items, out.String(), err)
		}
	}
}
