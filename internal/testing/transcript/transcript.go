// Package transcript collects what the tests of `make deploy-test` have shown and measured, in one file. The target prints it by section at
// its end. Tests never read the file. Without the variable FileVariable, the texts are only in the logs of the tests.
package transcript

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// FileVariable is the environment variable with the name of the file.
const FileVariable = "HCPMESH_TRANSCRIPT"

// Section is a part of the transcript. The target deploy-test of the Makefile prints the sections in the order of the constants.
type Section string

// The sections.
const (
	Nodes              Section = "nodes"
	Installation       Section = "installation"
	Customer           Section = "customer and engineer"
	Upgrade            Section = "upgrade under load"
	NodeLoss           Section = "drain and loss of a node"
	Rollback           Section = "rollback"
	PreviousRelease    Section = "previous release"
	ServiceClusterLoss Section = "loss of the service cluster"
	Deletion           Section = "deletion of the region"
)

// Sections returns all sections, in their order.
func Sections() []Section {
	return []Section{Nodes, Installation, Customer, Upgrade, NodeLoss, Rollback, PreviousRelease, ServiceClusterLoss, Deletion}
}

// Log logs a text in the test and adds it to a section.
func Log(t testing.TB, section Section, format string, arguments ...any) {
	t.Helper()
	text := fmt.Sprintf(format, arguments...)
	t.Log(text)
	if err := add(section, t.Name(), text); err != nil {
		t.Error(err)
	}
}

// Outcome adds the outcome of the test to a section when the test ends, with its duration.
func Outcome(t testing.TB, section Section) {
	began := time.Now()
	t.Cleanup(func() {
		outcome := "passed"
		if t.Failed() {
			outcome = "failed"
		}
		if t.Skipped() {
			outcome = "was skipped"
		}
		if err := add(section, t.Name(), fmt.Sprintf("%s after %v", outcome, time.Since(began).Round(time.Second))); err != nil {
			t.Error(err)
		}
	})
}

// add appends a line to the file: the section, the time, the test and the text.
func add(section Section, test, text string) error {
	name := os.Getenv(FileVariable)
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s | %s %s: %s\n", section, time.Now().UTC().Format(time.TimeOnly), test, text)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}
