package installation_test

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// transcript logs what a test has shown, and appends it to the file in HCPMESH_TRANSCRIPT, which make deploy-test prints at its end.
func transcript(t *testing.T, format string, arguments ...any) {
	t.Helper()
	text := fmt.Sprintf(format, arguments...)
	t.Log(text)
	name := os.Getenv("HCPMESH_TRANSCRIPT")
	if name == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(file, "%s %s: %s\n", time.Now().UTC().Format(time.TimeOnly), t.Name(), text)
	if closed := file.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
}
