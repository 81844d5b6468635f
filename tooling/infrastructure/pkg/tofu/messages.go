package tofu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Existing is a resource in Azure that the state does not have.
type Existing struct{ Address, ID, Version string }

// ExistsError lists resources that cannot be created because they exist.
type ExistsError struct{ Resources []Existing }

// Error lists the resources.
func (e *ExistsError) Error() string {
	lines := []string{"resources exist that the state does not have; if an interrupted apply created them, add them to the state with --adopt:"}
	for _, r := range e.Resources {
		lines = append(lines, "  "+r.Address+" "+r.ID)
	}
	return strings.Join(lines, "\n")
}

// messages reads what `tofu apply -json` prints. It writes the messages to a log and keeps the errors.
type messages struct {
	to       io.Writer
	line     []byte
	failures []diagnostic
}

type diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
}

// Write implements io.Writer.
func (m *messages) Write(p []byte) (int, error) {
	m.line = append(m.line, p...)
	for {
		line, rest, complete := bytes.Cut(m.line, []byte("\n"))
		if !complete {
			return len(p), nil
		}
		m.line = rest
		var message struct {
			Text       string      `json:"@message"`
			Diagnostic *diagnostic `json:"diagnostic"`
		}
		if err := json.Unmarshal(line, &message); err != nil {
			message.Text = string(line) // not a message, for example a crash of the provider
		}
		if message.Diagnostic != nil && message.Diagnostic.Severity == "error" {
			m.failures = append(m.failures, *message.Diagnostic)
		}
		if _, err := fmt.Fprintln(m.to, message.Text); err != nil {
			return 0, err
		}
	}
}

// existingID is the ID in the provider's error for a resource that exists.
var existingID = regexp.MustCompile(`A resource with the ID "([^"]+)"\s+already exists`)

// err returns the errors that tofu printed.
func (m *messages) err(plan *Plan) error {
	var all []error
	exists := &ExistsError{}
	for _, failure := range m.failures {
		if found := existingID.FindStringSubmatch(failure.Detail); found != nil && plan.Version(failure.Address) != "" {
			exists.Resources = append(exists.Resources, Existing{failure.Address, found[1], plan.Version(failure.Address)})
			continue
		}
		all = append(all, fmt.Errorf("%s: %s: %s", failure.Address, failure.Summary, failure.Detail))
	}
	if len(exists.Resources) > 0 {
		all = append(all, exists)
	}
	return errors.Join(all...)
}
