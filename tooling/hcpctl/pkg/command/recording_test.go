package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// castText has control characters of terminals: in the title, in what was typed and in what was shown.
const castText = "{\"version\":2,\"width\":80,\"height\":24,\"timestamp\":1764043200,\"title\":\"exec default/web -- sh\"}\n" +
	"[0.500000, \"i\", \"ls\\r\"]\n[1.250000, \"o\", \"\\u001b[2Jfile\u0085\\n\"]\n[2.000000, \"m\", \"{\\\"status\\\":\\\"Success\\\"}\"]\n"

// TestRecordingIsShownAndStored shows a recording without its control characters, and stores it as it is.
func TestRecordingIsShownAndStored(t *testing.T) {
	a := newSREs(t)
	start := time.Date(2026, 11, 25, 4, 0, 0, 0, time.UTC)
	a.shown["/recordings?cluster=demo&session=s"] = adminv1.RecordingList{Items: []adminv1.Recording{
		{ID: "r-2", Name: "alice@example.com", Kind: "pods/exec", Namespace: "default", Pod: "web\x1b[2J", StartTime: start},
		{ID: "r-1", Name: "alice@example.com", Kind: "pods/attach", Namespace: "default", Pod: "db", StartTime: start, EndTime: &start}}}
	out, err := a.hcpctl(t, "access", "recordings", "--cluster", "demo", "--session", "s")
	if err != nil || !strings.Contains(out, "in progress") || !strings.Contains(out, "interrupted") || !strings.Contains(out, "default/db") || strings.Contains(out, "\x1b") {
		t.Errorf("%q: %v", out, err)
	}

	a.shown["/recordings/r-1"], a.shown["/recordings/r-1/content"] = adminv1.Recording{ID: "r-1", EndTime: &start, Complete: true}, asciicast{text: castText}
	out, err = a.hcpctl(t, "access", "recording", "r-1")
	want := "2025-11-25T04:00:00Z  \"exec default/web -- sh\"\n" + `     0.500  typed    "ls\r"` + "\n" + `     1.250  shown    "\x1b[2Jfile\u0085\n"` + "\n" + `     2.000  note     "{\"status\":\"Success\"}"` + "\n"
	if err != nil || out != want {
		t.Errorf("%q, want %q: %v", out, want, err)
	}
	a.shown["/recordings/r-1/content?unverified=true"] = asciicast{text: strings.Replace(castText, "exec", "NOT VERIFIED: exec", 1)}
	if out, err = a.hcpctl(t, "access", "recording", "r-1", "--unverified"); err != nil || !strings.Contains(out, `"NOT VERIFIED: exec default/web -- sh"`) {
		t.Errorf("%q: %v", out, err)
	}
	file := filepath.Join(t.TempDir(), "recording.cast")
	if out, err = a.hcpctl(t, "access", "recording", "r-1", "--file", file); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	stored, err := os.ReadFile(file)
	if err != nil || string(stored) != castText {
		t.Errorf("the file has %q: %v", stored, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", info, err)
	}
	if _, err := a.hcpctl(t, "access", "recording", "r-1", "--file", file); err == nil || !strings.Contains(err.Error(), "--file") {
		t.Errorf("an existing file is replaced: %v", err)
	}
}

// TestAbortedRecordingIsAnError reads a recording whose response is aborted: the events before that are shown, and no file remains.
func TestAbortedRecordingIsAnError(t *testing.T) {
	a := newSREs(t)
	a.shown["/recordings/r-1"], a.shown["/recordings/r-1/content"] = adminv1.Recording{ID: "r-1"}, asciicast{castText, true}
	out, err := a.hcpctl(t, "access", "recording", "r-1")
	if err == nil || !strings.Contains(err.Error(), "is not complete") || !strings.Contains(out, "typed") {
		t.Errorf("%q: %v", out, err)
	}
	file := filepath.Join(t.TempDir(), "recording.cast")
	if _, err := a.hcpctl(t, "access", "recording", "r-1", "--file", file); err == nil {
		t.Error("an aborted recording is stored")
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file remains: %v", err)
	}
	if _, err := a.hcpctl(t, "access", "recording", "none"); err == nil || !strings.Contains(err.Error(), "There is no") {
		t.Errorf("a missing recording: %v", err)
	}
}
