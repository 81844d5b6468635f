// Package rulebook reads the tables of docs/validation.md: every rule for a request's content, with the field, the
// message and the artifact cases that test it.
//
// Tests use it to keep validation, document and cases consistent: every reported violation has a rule in the table,
// every rule has a case, and every named case expects the rule's error. Product code does not use this package.
package rulebook

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Rule is a row of a table.
type Rule struct {
	ID string
	// Field is the path of the field: [i] matches any index, [key] any key of a map, * any field, and - no field.
	Field string
	// Message is the message of a violation; … matches any text.
	Message string
	// Cases names the artifact cases that test the rule.
	Cases []string

	field, message *regexp.Regexp
}

// Book is the content of all tables.
type Book []Rule

// Read reads a Markdown file and returns the rows of its tables with four columns, of which the first is an ID.
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
			return nil, fmt.Errorf("%s:%d: rule %s is a duplicate", path, number+1, rule.ID)
		}
		seen[rule.ID] = true
		rule.compile()
		book = append(book, rule)
	}
	if len(book) == 0 {
		return nil, fmt.Errorf("%s contains no rules", path)
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

// Describes reports whether a violation matches the rule.
func (r Rule) Describes(field, message string) bool {
	return r.field.MatchString(field) && r.message.MatchString(message)
}

// Describes reports whether a violation matches a rule of the book.
func (b Book) Describes(field, message string) bool {
	for _, rule := range b {
		if rule.Describes(field, message) {
			return true
		}
	}
	return false
}
