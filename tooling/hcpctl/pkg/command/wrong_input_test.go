package command

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// nothing simulates an admin of a region that has nothing. It accepts elevations, because commands request them before their action.
type nothing struct{ *sres }

// ServeHTTP implements http.Handler.
func (n nothing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, adminv1.Root)
	switch {
	case strings.HasSuffix(path, "/token"):
		reply(w, http.StatusOK, map[string]any{"access_token": "token", "expires_in": 3600})
	case r.Method == http.MethodPost && path == "/elevations":
		reply(w, http.StatusCreated, adminv1.Elevation{ID: "own", State: adminv1.ElevationActive})
	case path == "/elevations/own":
		reply(w, http.StatusOK, adminv1.Elevation{ID: "own", State: adminv1.ElevationEnded})
	case path == "/me":
		reply(w, http.StatusOK, adminv1.Identity{Name: "ada", ObjectID: "object"})
	default:
		problem(w, http.StatusNotFound, "NotFound", "There is no "+path+".")
	}
}

// emptyRegion runs commands in a folder without files, a local region that was never started, and with an ARM and an admin that have nothing.
type emptyRegion struct {
	arm   *azure
	admin *sres
	state string
	// config is the folder with the configuration of deployments.
	config string
}

func newEmptyRegion(t *testing.T) *emptyRegion {
	t.Helper()
	r := &emptyRegion{arm: newAzure(t), admin: newSREs(t), state: t.TempDir()}
	server := httptest.NewTLSServer(nothing{r.admin})
	t.Cleanup(server.Close)
	r.admin.Server.URL = server.URL
	r.config = must.Get(filepath.Abs("../../../../config"))(t)
	// Both servers have the certificate of package httptest.
	home := t.TempDir()
	t.Chdir(home)
	for name, value := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": home, "PATH": "", "HCPMESH_STATE_DIR": r.state} {
		t.Setenv(name, value)
	}
	return r
}

// run runs a command line without hcpctl and returns its error.
func (r *emptyRegion) run(t *testing.T, line []string) error {
	t.Helper()
	root := NewFor(io.Discard, io.Discard, func(options adminclient.Options) (*adminclient.Client, error) { return r.admin.connect(options) })
	if c, _, err := root.Find(line); err == nil {
		options := []string{}
		set := func(flag, value string) {
			if c.Flag(flag) != nil && !slices.ContainsFunc(line, func(word string) bool { return strings.HasPrefix(word, "--"+flag) }) {
				options = append(options, "--"+flag, value)
			}
		}
		if c.Flag("endpoint") != nil {
			set("endpoint", r.arm.URL)
			set("ca-file", filepath.Join(r.arm.dir, "ca.crt"))
			set("credentials-file", filepath.Join(r.arm.dir, "credentials.json"))
		}
		set("config-dir", r.config)
		if dash := slices.Index(line, "--"); dash >= 0 {
			line = slices.Concat(line[:dash], options, line[dash:])
		} else {
			line = append(slices.Clone(line), options...)
		}
	}
	root.SetArgs(line)
	return root.ExecuteContext(t.Context())
}

// leaf is a command without subcommands, and the words of an example of it, without hcpctl.
type leaf struct {
	path    string
	command *cobra.Command
	line    []string
	// args are the positions in line of the positional arguments before `--`.
	args []int
}

// leaves returns all commands that do something, with each of their examples.
func leaves(t *testing.T) []leaf {
	t.Helper()
	var all []leaf
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			walk(child)
		}
		if c.HasSubCommands() && c.Name() != "audit" || !c.Runnable() {
			return
		}
		for line := range strings.Lines(c.Example) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "hcpctl ") {
				all = append(all, newLeaf(t, c, words(line)))
			}
		}
	}
	walk(New(io.Discard, io.Discard))
	return all
}

func newLeaf(t *testing.T, c *cobra.Command, line []string) leaf {
	t.Helper()
	c.InheritedFlags() // adds them to the flags of the command
	l := leaf{path: strings.TrimPrefix(c.CommandPath(), "hcpctl "), command: c, line: line}
	for i := len(strings.Fields(l.path)); i < len(line) && line[i] != "--"; i++ {
		flag, isFlag := line[i], strings.HasPrefix(line[i], "-")
		if !isFlag {
			l.args = append(l.args, i)
			continue
		}
		var found *pflag.Flag
		if name, isLong := strings.CutPrefix(flag, "--"); isLong {
			found = c.Flag(name)
		} else {
			found = c.Flags().ShorthandLookup(flag[1:])
		}
		if found == nil {
			t.Fatalf("%v: unknown flag %s", line, flag)
		}
		if found.NoOptDefVal == "" {
			i++
		}
	}
	return l
}

// with returns the line of the example with words before `--`, and without those at some positions.
func (l leaf) with(add []string, without ...int) []string {
	var line []string
	added := false
	for i, word := range l.line {
		if word == "--" {
			line, added = append(line, add...), true
		}
		if !slices.Contains(without, i) {
			line = append(line, word)
		}
	}
	if !added {
		line = append(line, add...)
	}
	return line
}

// values matches the values of a flag that its usage lists, for example `: reader or admin`.
var values = regexp.MustCompile(`: [\w-]+(?:, [\w-]+)*,? or [\w-]+(?:\.|$)`)

// wrongLines returns the invalid variants of an example, by what is wrong with them.
func (l leaf) wrongLines() map[string][]string {
	lines := map[string][]string{"unknown flag": l.with([]string{"--klingon"})}
	if n := len(l.args); n > 0 && l.command.Args != nil && l.command.Args(l.command, make([]string, n-1)) != nil {
		lines["missing argument"] = l.with(nil, l.args[n-1])
	}
	extra := slices.Repeat([]string{"extra"}, len(l.args)+1)
	if l.command.Args != nil && l.command.Args(l.command, extra) != nil {
		lines["extra argument"] = l.with([]string{"extra"})
	}
	check := func(f *pflag.Flag) {
		name, usage := pflag.UnquoteUsage(f)
		kind := f.Value.Type()
		switch {
		case kind == "bool" || kind == "duration" || strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "float"), values.MatchString(usage) && f.Name != "as", f.Name == "tag":
			lines["value of --"+f.Name] = l.with([]string{"--" + f.Name + "=klingon"})
		case name == "file" && !strings.HasPrefix(usage, "output"):
			lines["missing file of --"+f.Name] = l.with([]string{"--" + f.Name, "missing"})
		case f.Name == "as" && l.command.Flag("admin-endpoint") != nil:
			lines["unknown engineer"] = l.with([]string{"--as", "nobody"})
		}
	}
	l.command.LocalFlags().VisitAll(check)
	l.command.InheritedFlags().VisitAll(check)
	return lines
}

// TestWrongInputHasDocumentedExitCode runs every command with every kind of wrong input: a missing and an extra argument, an unknown flag, values
// that flags do not have, and missing files are invalid command lines.
func TestWrongInputHasDocumentedExitCode(t *testing.T) {
	r := newEmptyRegion(t)
	lines := 0
	for _, l := range leaves(t) {
		for what, line := range l.wrongLines() {
			lines++
			if err := r.run(t, line); ExitCode(err) != exitUsage {
				t.Errorf("%s: hcpctl %s: exit code %d, %v", what, strings.Join(line, " "), ExitCode(err), err)
			}
		}
	}
	if lines < 500 {
		t.Errorf("only %d command lines were run", lines)
	}
}

// TestUnknownNameHasDocumentedExitCode runs the examples of every command that names an object. Nothing exists, so the exit code is that of a
// missing object.
func TestUnknownNameHasDocumentedExitCode(t *testing.T) {
	r := newEmptyRegion(t)
	for _, file := range []string{"change.yaml", "entra.yaml"} { // those of the examples
		must.Do(t, os.WriteFile(file, []byte("properties: {}\n"), 0o600))
	}
	run := 0
	for _, l := range leaves(t) {
		if len(l.args) == 0 || creates[l.path] != "" {
			continue
		}
		run++
		line := slices.Clone(l.line)
		line[l.args[0]] = "klingon"
		want := exitNotFound
		if other, ok := otherCodes[l.path]; ok {
			want = other.code
		}
		if err := r.run(t, line); ExitCode(err) != want {
			t.Errorf("hcpctl %s: exit code %d, want %d: %v", strings.Join(line, " "), ExitCode(err), want, err)
		}
	}
	if run < 80 {
		t.Errorf("only %d command lines were run", run)
	}
}

// creates holds the commands whose arguments need not name an existing object, and why.
var creates = map[string]string{
	"cluster create": "creates it",
}

// otherCodes holds the commands whose unknown names have another exit code, and why.
var otherCodes = map[string]struct {
	code   int
	reason string
}{
	"help":           {exitUsage, "its arguments are commands"},
	"keys rotate":    {exitUsage, "the kinds of keysets are part of the command line"},
	"must-gather":    {exitUnavailable, "it reads from a local region first"},
	"trace":          {exitUnavailable, "it reads from the trace store of the local region"},
	"region kill":    {exitUnavailable, "the supervisor, which does not run, knows the processes"},
	"region restart": {exitUnavailable, "the supervisor, which does not run, knows the processes"},
}

// TestMissingResourcesAreNotFound deletes, changes and watches resources that do not exist. ARM accepts such a deletion.
func TestMissingResourcesAreNotFound(t *testing.T) {
	a := newAzure(t)
	mustRun(t, a, "cluster", "create", "a")
	for _, line := range []string{
		"cluster delete nosuch", "nodepool delete a nosuch", "nodepool delete nosuch workers", "externalauth delete a nosuch", "cluster update nosuch --tag a=b",
		"cluster watch nosuch", "cluster delete nosuch --no-wait",
	} {
		if _, progress, err := a.run(t, strings.Fields(line)...); ExitCode(err) != exitNotFound || strings.Contains(progress, "done") {
			t.Errorf("hcpctl %s: exit code %d, %v: %s", line, ExitCode(err), err, progress)
		}
	}
}

// TestCreateKeepsExistingResource creates resources that exist.
func TestCreateKeepsExistingResource(t *testing.T) {
	a := newAzure(t)
	mustRun(t, a, "cluster", "create", "a", "--version", "4.21")
	mustRun(t, a, "nodepool", "create", "a", "workers")
	before := len(a.versions)
	for line, want := range map[string]string{"cluster create a": "hcpctl cluster update", "nodepool create a workers": "hcpctl nodepool update"} {
		if _, _, err := a.run(t, strings.Fields(line)...); ExitCode(err) != exitFailed || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hcpctl %s: exit code %d, %v; want an error with %q", line, ExitCode(err), err, want)
		}
	}
	if got := field(a.stored(t, "/hcpOpenShiftClusters/a"), "properties", "version", "id"); got != "4.21" || len(a.versions) != before {
		t.Errorf("the version is %s", got)
	}
}

// TestInterruptedCommandNamesWorkingCommand interrupts a creation and runs the command line that the error recommends.
func TestInterruptedCommandNamesWorkingCommand(t *testing.T) {
	for name, args := range map[string][]string{
		"cluster":         {"cluster", "create", "b", "-g", "other group"},
		"node pool":       {"nodepool", "create", "a", "workers"},
		"update":          {"cluster", "update", "a", "--tag", "a=b"},
		"credential":      {"cluster", "credential", "revoke", "a"},
		"scaling":         {"nodepool", "scale", "a", "workers", "--replicas", "3"},
		"authentications": {"externalauth", "create", "a", "entra", "--issuer", "https://issuer.example", "--audience", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAzure(t)
			mustRun(t, a, "cluster", "create", "a")
			if name == "scaling" {
				mustRun(t, a, "nodepool", "create", "a", "workers")
			}
			ctx, interrupt := context.WithCancel(t.Context())
			a.before = func(r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/operations/") {
					interrupt()
				}
			}
			root := New(io.Discard, io.Discard)
			root.SetArgs(append(slices.Clone(args), "--endpoint", a.URL, "--ca-file", filepath.Join(a.dir, "ca.crt"), "--credentials-file", filepath.Join(a.dir, "credentials.json")))
			err := root.ExecuteContext(ctx)
			if ExitCode(err) != exitInterrupted {
				t.Fatalf("exit code %d, %v", ExitCode(err), err)
			}
			_, recommended, _ := strings.Cut(err.Error(), "`")
			recommended, _, _ = strings.Cut(recommended, "`")
			a.mu.Lock()
			for _, resource := range a.resources { // the operation has ended meanwhile
				resource["properties"].(map[string]any)["provisioningState"] = "Succeeded"
			}
			a.mu.Unlock()
			again := New(io.Discard, io.Discard)
			again.SetArgs(words(recommended))
			if err := again.ExecuteContext(t.Context()); err != nil {
				t.Errorf("%s: %v", recommended, err)
			}
		})
	}
}

// TestUnknownShellsAndTopics checks the commands that cobra adds.
func TestUnknownShellsAndTopics(t *testing.T) {
	for line, code := range map[string]int{
		"completion klingon": exitUsage, "completion bash x": exitUsage, "completion bash": 0, "help klingon": exitUsage, "help cluster klingon": exitUsage, "help cluster get": 0, "help": 0,
	} {
		root := New(io.Discard, io.Discard)
		root.SetArgs(strings.Fields(line))
		if err := root.ExecuteContext(t.Context()); ExitCode(err) != code {
			t.Errorf("hcpctl %s: exit code %d, want %d: %v", line, ExitCode(err), code, err)
		}
	}
}
