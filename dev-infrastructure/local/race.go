package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// RaceVariable set to 1 has our programs built and run with Go's race detector, from a folder of their own. They are several
// times as slow and as large, so this is for tests that look for races: `make race`.
const RaceVariable = "HCPMESH_RACE"

// racing reports whether that is asked for.
func racing() bool { return os.Getenv(RaceVariable) == "1" }

// raceLog is the beginning of the names of the files in which the detector says what it finds: one per process that has
// something to say, ending in its process id.
func (r *Region) raceLog() string { return filepath.Join(r.LogDir(), "race") }

// raceEnvironment tells a program's detector where to say it.
func (r *Region) raceEnvironment() []string {
	if !r.racing {
		return nil
	}
	return []string{"GORACE=log_path=" + r.raceLog()}
}

// Races is what the race detector has found in the region's programs so far; empty when that is nothing, or it is off.
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
