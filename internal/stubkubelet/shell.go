package stubkubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/term"
	clientremotecommand "k8s.io/client-go/tools/remotecommand"
	"mvdan.cc/sh/v3/syntax"
)

// process is a process of a simulated container.
type process struct {
	stream   *stream
	files    *fileSystem
	in       io.Reader
	out, err io.Writer
	// terminal is not nil if the client requested a TTY with input.
	terminal *term.Terminal
	tty      bool
	size     *terminalSize
	// folder is the current folder, and environment its variables.
	folder      string
	environment map[string]string
	last        int // exit status of the last command
}

// process returns a process with the streams of a client.
func (st *stream) process(in io.Reader, out, errOut io.Writer, tty bool, size *terminalSize) *process {
	p := &process{
		stream: st, files: st.cluster.fileSystem(st.pod, st.object, st.container.Name), tty: tty, size: size, folder: "/",
		environment: map[string]string{"HOME": "/root", "HOSTNAME": st.object.Name, "PATH": "/bin"},
	}
	for _, variable := range st.container.Env {
		if variable.ValueFrom == nil { // references are not resolved
			p.environment[variable.Name] = variable.Value
		}
	}
	p.in, p.out, p.err = st.bounded(in), st.boundedWriter(out), st.boundedWriter(errOut)
	if in == nil {
		p.in = strings.NewReader("")
	}
	switch {
	case tty && in != nil:
		p.environment["TERM"] = "xterm"
		p.terminal = term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{p.in, p.out}, "")
		p.in, p.out, p.err = &lineReader{terminal: p.terminal}, p.terminal, p.terminal
	case tty:
		p.environment["TERM"] = "xterm"
		p.out = newlineWriter{p.out}
		p.err = p.out
	}
	return p
}

// newlineWriter writes a carriage return before each newline, as terminals do.
type newlineWriter struct{ writer io.Writer }

func (w newlineWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.writer, strings.ReplaceAll(string(text), "\n", "\r\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// lineReader reads the lines that somebody types at a terminal, which echoes them.
type lineReader struct {
	terminal *term.Terminal
	rest     string
}

func (r *lineReader) Read(into []byte) (int, error) {
	if r.rest == "" {
		line, err := r.terminal.ReadLine()
		if err != nil {
			return 0, err
		}
		r.rest = line + "\n"
	}
	n := copy(into, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// terminalSize is the size that a client reports. It is safe for concurrent use.
type terminalSize struct {
	known chan struct{} // closed after the first report

	mu    sync.Mutex
	value clientremotecommand.TerminalSize
}

func newTerminalSize() *terminalSize { return &terminalSize{known: make(chan struct{})} }

func (t *terminalSize) set(size clientremotecommand.TerminalSize) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.value == (clientremotecommand.TerminalSize{}) && size != t.value {
		close(t.known)
	}
	if size != (clientremotecommand.TerminalSize{}) {
		t.value = size
	}
}

// wait returns the last size, and waits for the first one.
func (t *terminalSize) wait(ctx context.Context) (clientremotecommand.TerminalSize, error) {
	select {
	case <-t.known:
	case <-ctx.Done():
		return clientremotecommand.TerminalSize{}, ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value, nil
}

// Exit statuses of shells.
const (
	statusMisuse   = 2
	statusNotFound = 127
)

// command is a built-in command. It returns its exit status.
type command func(ctx context.Context, p *process, arguments []string) int

// commands returns the built-in commands by name. They are listed in hypershift/docs/behaviour.md.
func commands() map[string]command {
	return map[string]command{
		"cat": cat, "cd": changeFolder, "echo": echo, "env": printEnvironment, "false": exitWith(1), "hostname": hostname, "ls": list, "mkdir": makeFolder,
		"pwd": printFolder, "rm": remove, "sh": shell, "sleep": sleep, "stty": terminalSettings, "tar": archive, "test": evaluate, "true": exitWith(0),
	}
}

// commandNames returns the names of the built-in commands.
func commandNames() []string {
	return []string{"cat", "cd", "echo", "env", "false", "hostname", "ls", "mkdir", "pwd", "rm", "sh", "sleep", "stty", "tar", "test", "true"}
}

// execute runs a command and returns its exit status.
func (p *process) execute(ctx context.Context, words []string) int {
	if ctx.Err() != nil {
		return killed
	}
	if len(words) == 0 {
		p.complain("no command")
		return statusMisuse
	}
	name := words[0]
	if path.IsAbs(name) && slices.Contains([]string{"/bin", "/usr/bin"}, path.Dir(name)) {
		name = path.Base(name)
	}
	run := commands()[name]
	if run == nil {
		p.complain("%s: not found: the container is simulated and has only these commands: %s", words[0], strings.Join(commandNames(), " "))
		return statusNotFound
	}
	return run(ctx, p, words[1:])
}

// complain writes a message to the error stream. A client that does not read it is gone.
func (p *process) complain(format string, arguments ...any) {
	_, _ = fmt.Fprintf(p.err, format+"\n", arguments...)
}

// path returns the absolute path of a name.
func (p *process) path(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(p.folder, name)
	}
	return path.Clean(name)
}

// shell runs sh: a script after -c, or the lines of the input.
func shell(ctx context.Context, p *process, arguments []string) int {
	child := *p
	child.environment = maps.Clone(p.environment)
	switch {
	case len(arguments) >= 2 && arguments[0] == "-c":
		status, _ := child.script(ctx, arguments[1])
		return status
	case len(arguments) > 0 && arguments[0] != "-i":
		p.complain("sh: the simulated shell has only the option -c")
		return statusMisuse
	case child.terminal != nil:
		return child.interactive(ctx)
	}
	lines := bufio.NewScanner(child.in)
	child.in = strings.NewReader("") // commands of the script do not read the script
	for lines.Scan() {
		if status, exit := child.script(ctx, lines.Text()); exit {
			return status
		}
	}
	if err := lines.Err(); err != nil {
		p.complain("sh: reading the script: %v", err)
		return statusMisuse
	}
	return child.last
}

// interactive runs the lines that somebody types.
func (p *process) interactive(ctx context.Context) int {
	for ctx.Err() == nil {
		p.terminal.SetPrompt("$ ")
		line, err := p.terminal.ReadLine()
		p.terminal.SetPrompt("")
		if err != nil { // end of input
			break
		}
		if status, exit := p.script(ctx, line); exit {
			return status
		}
	}
	return p.last
}

// maxScript bounds the length of a script, because parsing is recursive.
const maxScript = 8 << 10

// script runs a script. exit is true if it has called exit.
func (p *process) script(ctx context.Context, text string) (status int, exit bool) {
	if len(text) > maxScript {
		return p.misuse("a script of more than %d bytes is not simulated", maxScript), false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(text), "")
	if err != nil {
		return p.misuse("%v", err), false
	}
	for _, statement := range file.Stmts {
		if exit = p.statement(ctx, statement); exit {
			break
		}
	}
	return p.last, exit
}

// misuse complains about a script, and returns and sets the exit status.
func (p *process) misuse(format string, arguments ...any) int {
	p.complain("sh: "+format, arguments...)
	p.last = statusMisuse
	return p.last
}

// statement runs a statement and sets the exit status. It returns true if the statement has called exit.
func (p *process) statement(ctx context.Context, s *syntax.Stmt) (exit bool) {
	switch c := s.Cmd.(type) {
	case *syntax.BinaryCmd:
		if c.Op != syntax.AndStmt && c.Op != syntax.OrStmt {
			break
		}
		if exit := p.statement(ctx, c.X); exit || (p.last == 0) != (c.Op == syntax.AndStmt) {
			return exit
		}
		return p.statement(ctx, c.Y)
	case *syntax.CallExpr:
		if s.Negated || s.Background {
			break
		}
		p.last, exit = p.simple(ctx, c, s.Redirs)
		return exit
	case nil: // redirections only
		p.last, exit = p.simple(ctx, &syntax.CallExpr{}, s.Redirs)
		return exit
	}
	p.misuse("only simple commands with ;, && and || are simulated")
	return false
}

// simple runs a command with its redirections.
func (p *process) simple(ctx context.Context, c *syntax.CallExpr, redirections []*syntax.Redirect) (status int, exit bool) {
	child := *p
	var words []string
	for _, arg := range c.Args {
		word, err := p.expand(arg.Parts, false)
		if err != nil {
			return p.misuse("%v", err), false
		}
		words = append(words, word)
	}
	var output *redirection
	for _, r := range redirections {
		name, err := p.expand(r.Word.Parts, false)
		if err == nil && (r.N != nil || r.Op != syntax.RdrIn && r.Op != syntax.RdrOut && r.Op != syntax.AppOut) {
			err = fmt.Errorf("the redirection %s is not simulated", r.Op)
		}
		if err != nil {
			return p.misuse("%v", err), false
		}
		name = p.path(name)
		if r.Op != syntax.RdrIn {
			output = &redirection{name: name, add: r.Op == syntax.AppOut}
			child.out = output
			continue
		}
		content, err := p.files.read(name)
		if err != nil {
			p.complain("sh: %s: %v", name, err)
			return 1, false
		}
		child.in = strings.NewReader(string(content))
	}
	for _, assign := range c.Assigns {
		var value string
		if assign.Value != nil {
			var err error
			if value, err = p.expand(assign.Value.Parts, false); err != nil {
				return p.misuse("%v", err), false
			}
		}
		p.environment[assign.Name.Value] = value
	}
	switch {
	case len(words) == 0:
	case words[0] == "exit":
		if len(words) == 1 {
			return p.last, true
		}
		if _, err := fmt.Sscanf(words[1], "%d", &status); err != nil || status < 0 || status > 255 {
			p.complain("sh: exit: %s is not a number from 0 to 255", words[1])
			return statusMisuse, true
		}
		return status, true
	default:
		status = child.execute(ctx, words)
		p.folder = child.folder
	}
	if output != nil {
		if err := output.store(p); err != nil {
			p.complain("sh: %s: %v", output.name, err)
			return 1, false
		}
	}
	return status, false
}

// redirection collects the output of a command for a file.
type redirection struct {
	name    string
	add     bool
	content []byte
}

func (r *redirection) Write(text []byte) (int, error) {
	if len(r.content)+len(text) > MaxFileBytes {
		return 0, errNoSpace
	}
	r.content = append(r.content, text...)
	return len(text), nil
}

func (r *redirection) store(p *process) error {
	if r.name == "/dev/null" {
		return nil
	}
	content := r.content
	if r.add {
		before, err := p.files.read(r.name)
		if err != nil && !errors.Is(err, errNotFound) {
			return err
		}
		content = slices.Concat(before, content)
	}
	return p.files.write(r.name, content, 0o644, p.now())
}

// expand returns the text of a word. Its variables are not split into words.
func (p *process) expand(parts []syntax.WordPart, quoted bool) (string, error) {
	var text strings.Builder
	for _, part := range parts {
		switch n := part.(type) {
		case *syntax.Lit:
			for i := 0; i < len(n.Value); i++ {
				switch c := n.Value[i]; {
				case c == '\\' && i+1 < len(n.Value) && (!quoted || strings.IndexByte("\"\\$`", n.Value[i+1]) >= 0):
					i++
				case !quoted && strings.IndexByte("*?[", c) >= 0:
					return "", fmt.Errorf("%q is not simulated outside of quotes", c)
				}
				text.WriteByte(n.Value[i])
			}
		case *syntax.SglQuoted:
			text.WriteString(n.Value)
		case *syntax.DblQuoted:
			inner, err := p.expand(n.Parts, true)
			if err != nil {
				return "", err
			}
			text.WriteString(inner)
		case *syntax.ParamExp:
			switch {
			case n.Length || n.Exp != nil:
				return "", errors.New("only ${NAME} is simulated of ${…}")
			case n.Param.Value == "?":
				text.WriteString(strconv.Itoa(p.last))
			default:
				text.WriteString(p.environment[n.Param.Value])
			}
		default:
			return "", errors.New("an expansion with $( or ` is not simulated")
		}
	}
	return text.String(), nil
}
