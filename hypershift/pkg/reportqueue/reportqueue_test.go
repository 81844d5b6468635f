package reportqueue_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/reportqueue"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// TestFailedReportsAreRepeated: a control plane that was added twice is reported once, failed writes are repeated, and only those that are no conflict are
// logged.
func TestFailedReportsAreRepeated(t *testing.T) {
	t.Parallel()
	failures := []error{errors.New("the management cluster is away"), apierrors.NewConflict(schema.GroupResource{}, "hc", nil), nil}
	var log bytes.Buffer
	var written []string
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	q := reportqueue.New()
	q.Add("first", 0)
	q.Add("first", 0)
	q.Add("later", time.Millisecond)
	q.Run(ctx, slog.New(slog.NewTextHandler(&log, nil)), func(_ context.Context, controlPlane string) error {
		written = append(written, controlPlane)
		if controlPlane == "later" {
			return nil
		}
		err := failures[0]
		if failures = failures[1:]; len(failures) == 0 {
			stop()
		}
		return err
	})
	count := map[string]int{}
	for _, name := range written {
		count[name]++
	}
	if diff := cmp.Diff(map[string]int{"first": 3, "later": 1}, count); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "control_plane=first") || !strings.Contains(text, "is away") {
		t.Errorf("the log is %s", text)
	}
}
