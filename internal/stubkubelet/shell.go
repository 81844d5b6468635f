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
	"strings"
	"sync"

	"golang.org/x/term"
	clientremotecommand "k8s.io/client-go/tools/remotecommand"
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

// script runs a script. exit is true if it has called exit.
func (p *process) script(ctx context.Context, text string) (status int, exit bool) {
	tokens, err := tokenize(text)
	if err != nil {
		p.complain("sh: %v", err)
		p.last = statusMisuse
		return p.last, false
	}
	run := true
	for len(tokens) > 0 {
		end := slices.IndexFunc(tokens, func(t token) bool { return t.operator && (t.text == ";" || t.text == "&&" || t.text == "||") })
		simple, separator := tokens, ";"
		tokens = nil
		if end >= 0 {
			separator = simple[end].text
			simple, tokens = simple[:end], simple[end+1:]
		}
		if run && len(simple) > 0 {
			var exited bool
			if p.last, exited = p.simple(ctx, simple); exited {
				return p.last, true
			}
		}
		switch separator {
		case ";":
			run = true
		case "&&":
			run = p.last == 0
		case "||":
			run = p.last != 0
		}
	}
	return p.last, false
}

// simple runs a command with its redirections.
func (p *process) simple(ctx context.Context, tokens []token) (status int, exit bool) {
	child := *p
	var words []string
	var output *redirection
	for i := 0; i < len(tokens); i++ {
		if !tokens[i].operator {
			words = append(words, tokens[i].expand(p))
			continue
		}
		if i+1 >= len(tokens) || tokens[i+1].operator {
			p.complain("sh: a name is missing after %s", tokens[i].text)
			return statusMisuse, false
		}
		name := p.path(tokens[i+1].expand(p))
		if tokens[i].text == "<" {
			content, err := p.files.read(name)
			if err != nil {
				p.complain("sh: %s: %v", name, err)
				return 1, false
			}
			child.in = strings.NewReader(string(content))
		} else {
			output = &redirection{name: name, add: tokens[i].text == ">>"}
			child.out = output
		}
		i++
	}
	for len(words) > 0 {
		name, value, assigned := strings.Cut(words[0], "=")
		if !assigned || !isName(name) {
			break
		}
		p.environment[name] = value
		words = words[1:]
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

// token is an operator, or a word of parts.
type token struct {
	operator bool
	text     string // of an operator
	parts    []part
}

// part is literal text, or the name of a variable.
type part struct {
	text     string
	variable bool
}

// expand returns the text of a word. Its variables are not split into words.
func (t *token) expand(p *process) string {
	var text strings.Builder
	for _, part := range t.parts {
		switch {
		case !part.variable:
			text.WriteString(part.text)
		case part.text == "?":
			_, _ = fmt.Fprint(&text, p.last)
		default:
			text.WriteString(p.environment[part.text])
		}
	}
	return text.String()
}

// tokenize parses the part of the shell's language that is simulated: words with quotes and variables, the separators of commands, and
// redirections.
func tokenize(text string) ([]token, error) {
	var tokens []token
	var word *token
	literal := func(s string) {
		if word == nil {
			word = &token{}
		}
		word.parts = append(word.parts, part{text: s})
	}
	flush := func() {
		if word != nil {
			tokens = append(tokens, *word)
			word = nil
		}
	}
	operator := func(s string) {
		flush()
		tokens = append(tokens, token{operator: true, text: s})
	}
	// variable parses a variable after its dollar sign and returns the rest.
	variable := func(rest string) (string, error) {
		literal("")
		name, after := "", ""
		switch {
		case strings.HasPrefix(rest, "?"):
			name, after = "?", rest[1:]
		case strings.HasPrefix(rest, "{"):
			var closed bool
			if name, after, closed = strings.Cut(rest[1:], "}"); !closed || !isName(name) {
				return "", errors.New("only ${NAME} is simulated of ${…}")
			}
		case strings.HasPrefix(rest, "("):
			return "", errors.New("$(…) is not simulated")
		default:
			end := 0
			for end < len(rest) && isName(rest[:end+1]) {
				end++
			}
			if name, after = rest[:end], rest[end:]; name == "" {
				literal("$")
				return rest, nil
			}
		}
		word.parts = append(word.parts, part{text: name, variable: true})
		return after, nil
	}
	var err error
	for text != "" {
		c := text[0]
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			flush()
			text = text[1:]
		case c == '\n' || c == ';':
			operator(";")
			text = text[1:]
		case strings.HasPrefix(text, "&&"), strings.HasPrefix(text, "||"), strings.HasPrefix(text, ">>"):
			operator(text[:2])
			text = text[2:]
		case c == '>' || c == '<':
			operator(text[:1])
			text = text[1:]
		case strings.ContainsRune("|&()`*?[", rune(c)):
			return nil, fmt.Errorf("%q is not simulated outside of quotes", c)
		case c == '#' && word == nil:
			_, text, _ = strings.Cut(text, "\n")
			operator(";")
		case c == '\'':
			quoted, after, closed := strings.Cut(text[1:], "'")
			if !closed {
				return nil, errors.New("a quote is not closed")
			}
			literal(quoted)
			text = after
		case c == '"':
			literal("")
			text = text[1:]
			for text != "" && text[0] != '"' {
				switch {
				case text[0] == '\\' && len(text) > 1 && strings.ContainsRune("\"\\$`", rune(text[1])):
					literal(text[1:2])
					text = text[2:]
				case text[0] == '$':
					if text, err = variable(text[1:]); err != nil {
						return nil, err
					}
				case text[0] == '`':
					return nil, errors.New("`…` is not simulated")
				default:
					literal(text[:1])
					text = text[1:]
				}
			}
			if text == "" {
				return nil, errors.New("a quote is not closed")
			}
			text = text[1:]
		case c == '\\' && len(text) > 1:
			literal(text[1:2])
			text = text[2:]
		case c == '$':
			if text, err = variable(text[1:]); err != nil {
				return nil, err
			}
		default:
			literal(text[:1])
			text = text[1:]
		}
	}
	flush()
	return tokens, nil
}

// isName reports whether text is the name of a variable.
func isName(text string) bool {
	for i, c := range text {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return text != ""
}
