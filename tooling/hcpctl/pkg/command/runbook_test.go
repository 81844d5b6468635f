package command

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
)

// written is where documents have a command: on a line of its own, or within a sentence.
var written = regexp.MustCompile("(?m)^ {4,}(?:\\$ )?(?:\\.build/bin/)?(hcpctl [^\n]*)$|`(hcpctl [^`]*)`")

// TestTheCommandsOfTheRunbooksExist: whoever copies a command out of a document at night, or out of an answer of `hcpctl explain`, is not
// told that there is no such command, flag or value. Commands in sentences may leave their arguments out.
func TestTheCommandsOfTheRunbooksExist(t *testing.T) {
	source, err := local.FindSource()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != source && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.Contains(".md .txt .yaml", filepath.Ext(path)) || filepath.Ext(path) == "":
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(source, path)
		for _, match := range written.FindAllStringSubmatch(string(content), -1) {
			for _, line := range alternatives(words(match[1] + match[2])) {
				found++
				if err := understood(line, match[1] != ""); err != nil {
					t.Errorf("%s: hcpctl %s: %v", name, strings.Join(line, " "), err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 100 {
		t.Errorf("only %d commands were found: are they written in another way now?", found)
	}
}

// words are those of a command line after its first, without a comment, and with something in the place of what is left open.
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

// alternatives are the command lines that one stands for in which words are listed, as in `show, retry` or `pause|resume`.
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

// understood says what hcpctl would have against a command line; whole is set for one that is there to be copied.
func understood(line []string, whole bool) error {
	if len(line) == 0 || !regexp.MustCompile(`^[a-z-]+$`).MatchString(line[0]) {
		return nil // hcpctl itself, or its place in a picture
	}
	c, rest, err := New(io.Discard, io.Discard).Find(line)
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
	if !whole {
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
