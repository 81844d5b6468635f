// Package rulebook reads the table of docs/validation.md: every rule that a request's content must keep, with the field
// that is named, the message, and the artifact cases that show it.
//
// Tests hold three things together with it: no violation is reported that the table does not have, no rule stands in the
// table that no case shows, and no case is named that does not show its rule. Nothing that is served reads it.
package rulebook

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Rule is a row of the table.
type Rule struct {
	ID string
	// Field is the path that is named: [i] is any place in a list, [key] any key of a map, * any field, - none.
	Field string
	// Message is what is said; … stands for anything.
	Message string
	// Cases are the artifact cases that show it.
	Cases []string

	field, message *regexp.Regexp
}

// Book is the table.
type Book []Rule

// Read reads the rows of a Markdown file's tables that have four columns, the first of them an id.
func Read(path string) (Book, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var book Book
	seen := map[string]bool{}
	for number, line := range strings.Split(string(content), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 4 || cells[0] == "rule" {
			continue
		}
		rule := Rule{ID: cells[0], Field: strings.Trim(cells[1], "`"), Message: strings.Trim(cells[2], "`")}
		for name := range strings.SplitSeq(cells[3], ",") {
			rule.Cases = append(rule.Cases, strings.TrimSpace(name))
		}
		if seen[rule.ID] {
			return nil, fmt.Errorf("%s:%d: the rule %s stands twice", path, number+1, rule.ID)
		}
		seen[rule.ID] = true
		rule.compile()
		book = append(book, rule)
	}
	if len(book) == 0 {
		return nil, fmt.Errorf("%s has no table of rules", path)
	}
	return book, nil
}

func (r *Rule) compile() {
	field := regexp.QuoteMeta(r.Field)
	switch r.Field {
	case "*":
		field = ".+"
	case "-":
		field = ""
	}
	field = strings.NewReplacer(`\[i\]`, `\[[0-9]+\]`, `\[key\]`, `\[.*\]`).Replace(field)
	r.field = regexp.MustCompile("(?s)^" + field + "$")
	r.message = regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(r.Message), "…", ".*") + "$")
}

// Describes reports whether a violation of the rule looks so.
func (r Rule) Describes(field, message string) bool {
	return r.field.MatchString(field) && r.message.MatchString(message)
}

// Describes reports whether a rule of the book describes a violation.
func (b Book) Describes(field, message string) bool {
	for _, rule := range b {
		if rule.Describes(field, message) {
			return true
		}
	}
	return false
}
