package transcript_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
)

func TestTranscriptHasTextsAndOutcomes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "transcript.txt")
	t.Setenv(transcript.FileVariable, file)
	t.Run("one", func(t *testing.T) {
		transcript.Outcome(t, transcript.Nodes)
		transcript.Log(t, transcript.Rollback, "%d calls", 3)
	})
	text := must.Get(os.ReadFile(file))(t)
	want := regexp.MustCompile(`^rollback \| \d\d:\d\d:\d\d TestTranscriptHasTextsAndOutcomes/one: 3 calls\nnodes \| \d\d:\d\d:\d\d TestTranscriptHasTextsAndOutcomes/one: passed after 0s\n$`)
	if !want.Match(text) {
		t.Errorf("the file has %q", text)
	}
}

// TestMakefilePrintsAllSections checks that deploy-test prints each section.
func TestMakefilePrintsAllSections(t *testing.T) {
	makefile := must.Get(os.ReadFile("../../../Makefile"))(t)
	var quoted []string
	for _, section := range transcript.Sections() {
		quoted = append(quoted, "'"+string(section)+"'")
	}
	if want := "for section in " + strings.Join(quoted, " ") + "; do"; !strings.Contains(string(makefile), want) {
		t.Errorf("the Makefile has no %q", want)
	}
}
