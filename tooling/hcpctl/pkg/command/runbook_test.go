package command

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// documented matches commands in documents: on a line of their own, within a sentence, or as the annotation of an alert.
var documented = regexp.MustCompile("(?m)^ {4,}(?:\\$ )?(?:\\.build/bin/)?(hcpctl [^\n]*)$|`(hcpctl [^`]*)`|^ {6}command: \"(hcpctl [^\"]*)\"$")

// labelValue matches the value of a label in an annotation.
var labelValue = regexp.MustCompile(`\{\{ \$labels\.[a-z_]+ \}\}`)

// TestDocumentedCommandsExist checks that the commands in all documents and expected outputs parse. Commands within sentences may
// omit their arguments. git lists the documents: if the test read all folders, its cached result would depend on all files in them.
func TestDocumentedCommandsExist(t *testing.T) {
	source := must.Get(local.FindSource())(t)
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-co", "--exclude-standard", "-z", "*.md", "*.txt", "*.yaml")
	list.Dir = source
	names := must.Get(list.Output())(t)
	found := 0
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(source, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range documented.FindAllStringSubmatch(string(content), -1) {
			for _, line := range alternatives(words(labelValue.ReplaceAllString(match[1]+match[2]+match[3], "VALUE"))) {
				found++
				if err := parses(line, match[2] == ""); err != nil {
					t.Errorf("%s: hcpctl %s: %v", name, strings.Join(line, " "), err)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d commands found: the expression no longer matches the documents", found)
	}
}

// words returns the words of a command line after the first, without a comment. Placeholders are replaced by values.
func words(line string) []string {
	var list []string
	var word strings.Builder
	var quote rune
	inWord := false
	end := func() {
		if inWord {
			list = append(list, word.String())
		}
		word.Reset()
		inWord = false
	}
	for _, r := range strings.Join(strings.FieldsFunc(line, func(r rune) bool { return r == '\n' }), " ") {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, inWord = r, true
		case quote == 0 && r == ' ':
			end()
		case quote == 0 && r == '#' && !inWord:
			return list[1:]
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	end()
	for i, w := range list {
		switch w {
		case "…":
			list[i] = "x"
		case "N":
			list[i] = "1"
		}
	}
	return list[1:]
}

// alternatives returns the command lines that a line with lists of words stands for, such as `show, retry` or `pause|resume`.
func alternatives(line []string) [][]string {
	for i, word := range line {
		var choices []string
		end := i + 1
		switch {
		case strings.HasSuffix(word, ","):
			for end = i; end < len(line) && (end == i || strings.HasSuffix(line[end-1], ",")); end++ {
				choices = append(choices, strings.TrimSuffix(line[end], ","))
			}
		case strings.Contains(word, "|"):
			choices = strings.Split(word, "|")
		default:
			continue
		}
		var all [][]string
		for _, choice := range choices {
			one := append(append(append([]string{}, line[:i]...), choice), line[end:]...)
			all = append(all, alternatives(one)...)
		}
		return all
	}
	return [][]string{line}
}

// parses returns the error that hcpctl reports for a command line. complete is true for command lines to copy.
func parses(line []string, complete bool) error {
	if len(line) == 0 || !regexp.MustCompile(`^[a-z-]+$`).MatchString(line[0]) {
		return nil // hcpctl itself, or a picture
	}
	root := New(io.Discard, io.Discard)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	c, rest, err := root.Find(line)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	args := c.Flags().Args()
	if c.HasSubCommands() {
		if len(args) == 0 || args[0] == "x" {
			return nil
		}
		return requireSubcommand(c, args)
	}
	if !complete {
		return nil
	}
	if err := c.ValidateArgs(args); err != nil {
		return err
	}
	if err := c.ValidateRequiredFlags(); err != nil {
		return err
	}
	return c.ValidateFlagGroups()
}
