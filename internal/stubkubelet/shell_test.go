package stubkubelet

import (
	"bytes"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// newProcess returns a process with files that no client uses, and its output and error output.
func newProcess(input string) (p *process, out, errOut *bytes.Buffer) {
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	object := &corev1.Pod{}
	object.Name = "pod"
	return &process{
		stream: &stream{object: object}, files: newFileSystem(&budget{limit: maxTotalFileBytes}, object), in: strings.NewReader(input), out: out, err: errOut,
		folder: "/", environment: map[string]string{"HOME": "/root", "COLOUR": "dark green"}, size: newTerminalSize(),
	}, out, errOut
}

func TestScripts(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]struct {
		out    string
		status int
		reason string
	}{
		`echo a   'b  c' "d e"`:                           {"a b  c d e\n", 0, "quotes keep blanks"},
		`echo $COLOUR ${COLOUR}! '$COLOUR' $`:             {"dark green dark green! $COLOUR $\n", 0, "variables"},
		`false; echo $?`:                                  {"1\n", 0, "exit status of the previous command"},
		`false && echo a || echo b`:                       {"b\n", 0, "conditions"},
		`true || echo a; echo b`:                          {"b\n", 0, "a separator ends a condition"},
		`echo a > /tmp/f; echo b >> /tmp/f; cat < /tmp/f`: {"a\nb\n", 0, "redirections"},
		`echo lost > /dev/null`:                           {"", 0, "the null device"},
		`X=1 && echo $X`:                                  {"1\n", 0, "assignments"},
		`cd /tmp && pwd; cd; pwd`:                         {"/tmp\n/root\n", 0, "current folder"},
		`cd /missing`:                                     {"", 1, "a folder that does not exist"},
		`mkdir -p a/b && rm -r a && ls a`:                 {"", 1, "folders"},
		`sh -c 'exit 7'; exit`:                            {"", 7, "exit status of a child"},
		`echo a | cat`:                                    {"", 2, "no pipes"},
		`echo *`:                                          {"", 2, "no patterns"},
		`echo 'a`:                                         {"", 2, "a quote that is not closed"},
		`echo a >`:                                        {"", 2, "a redirection without a name"},
		"# comment\necho a # b":                           {"a\n", 0, "comments"},
		`echo a &`:                                        {"", 2, "no background"},
		`if true; then echo a; fi`:                        {"", 2, "no control structures"},
		strings.Repeat(" ", maxScript+1):                  {"", 2, "scripts are bounded"},
	} {
		p, out, errOut := newProcess("")
		status, _ := p.script(t.Context(), script)
		if status != want.status || out.String() != want.out || status == statusMisuse && errOut.Len() == 0 {
			t.Errorf("%s: %s: status %d, output %q, errors %q, want %+v", want.reason, script, status, out, errOut, want)
		}
	}
}

func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	total := &budget{limit: MaxFileBytes + 10*fileOverhead}
	first, second := newFileSystem(total, &corev1.Pod{}), newFileSystem(total, &corev1.Pod{})
	if err := first.write("/tmp/a", make([]byte, MaxFileBytes+1), 0o644, time.Time{}); err != errNoSpace {
		t.Errorf("a file that is too large: %v", err)
	}
	must.Do(t, first.write("/tmp/a", make([]byte, MaxFileBytes/2), 0o644, time.Time{}))
	if err := second.write("/tmp/a", make([]byte, MaxFileBytes*3/4), 0o644, time.Time{}); err != errNoSpace {
		t.Errorf("more than all containers may have: %v", err)
	}
	first.close()
	if err := second.write("/tmp/a", make([]byte, MaxFileBytes*3/4), 0o644, time.Time{}); err != nil {
		t.Errorf("after the other container has ended: %v", err)
	}
	if err := first.write("/tmp/a", nil, 0o644, time.Time{}); err == nil {
		t.Error("a container that has ended accepts files")
	}
	must.Do(t, second.remove("/tmp/a", false))
	second.close()
	if total.used != 0 {
		t.Errorf("%d bytes are still counted", total.used)
	}
}

func FuzzScript(f *testing.F) {
	for _, seed := range []string{"echo a", `"$X" '${Y}' \z`, "a && b || c; d > e", "$(x) `y` ${z", "tar xf - -C /tmp", "exit 300", "cat <"} {
		f.Add(seed, "input")
	}
	f.Fuzz(func(t *testing.T, script, input string) {
		if strings.Contains(script, "sleep") || strings.Contains(script, "stty") || len(script) > 1000 { // these wait
			return
		}
		p, _, _ := newProcess(input)
		if status, _ := p.script(t.Context(), script); status < 0 || status > 255 {
			t.Errorf("exit status %d", status)
		}
		p.files.close()
		if p.files.total.used != 0 {
			t.Errorf("%d bytes are still counted", p.files.total.used)
		}
	})
}

func FuzzLogOptions(f *testing.F) {
	for _, seed := range []string{"", "tailLines=3&timestamps=true", "sinceTime=2026-01-02T03:04:05Z", "limitBytes=0", "sinceSeconds=9223372036854775807", "stream=Stderr", "follow=x"} {
		f.Add(seed)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	lines := logLines(&corev1.Pod{}, &corev1.Container{})
	f.Fuzz(func(t *testing.T, text string) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		options, err := parseLogOptions(query, now)
		if err != nil {
			return
		}
		if got := options.render(lines); options.limit >= 0 && int64(len(got)) > options.limit {
			t.Errorf("%d bytes are more than the limit %d", len(got), options.limit)
		}
	})
}
