package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// RaceVariable is an environment variable. If it is 1, our programs are built and run with Go's race detector, from a
// separate folder. They are several times slower and larger, so this is for `make race`.
const RaceVariable = "HCPMESH_RACE"

// racing reports whether the race detector is requested.
func racing() bool { return os.Getenv(RaceVariable) == "1" }

// raceLog returns the path prefix of the race detector's reports: one file per process with reports, with the process
// ID as suffix.
func (r *Region) raceLog() string { return filepath.Join(r.LogDir(), "race") }

// raceEnvironment returns the environment variable that makes a program's race detector write to these files.
func (r *Region) raceEnvironment() []string {
	if !r.racing {
		return nil
	}
	return []string{"GORACE=log_path=" + r.raceLog()}
}

// Races returns the reports of the race detector so far; empty if there are none, or if it is off.
func (r *Region) Races() string {
	files, _ := filepath.Glob(r.raceLog() + ".*")
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&all, "%s:\n%s\n", file, text)
	}
	return all.String()
}
