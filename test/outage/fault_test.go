package outage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// inject makes a component unavailable. The component can recover once end was called.
func (r *region) inject(t *testing.T, ctx context.Context, c component, f fault) (end func() error) {
	t.Helper()
	if c.process == "" {
		return r.injectHosted(t, ctx, f)
	}
	switch f {
	case hung:
		if err := r.Signal(c.process, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		return func() error {
			_ = r.Signal(c.process, syscall.SIGCONT) // the supervisor may have killed it
			return nil
		}
	case terminated:
		release, err := r.Hold(ctx, c.process)
		if err != nil {
			t.Fatal(err)
		}
		return func() error { release(); return nil }
	default:
		filler := smalldisk.Fill(t, filepath.Join(r.dir, c.disk))
		return func() error { return os.Remove(filler) }
	}
}

// hostedLog is the name of the log of a hosted API server in its folder.
const hostedLog = "kube-apiserver.log"

// injectHosted makes the API servers of the clusters that are not created or deleted unavailable. A server is kept from being
// restarted by a folder with the name of its log.
func (r *region) injectHosted(t *testing.T, ctx context.Context, f fault) (end func() error) {
	t.Helper()
	var ends []func() error
	end = func() error {
		var failed error
		for _, undo := range ends {
			failed = errors.Join(failed, undo())
		}
		ends = nil
		return failed
	}
	for _, name := range []string{quiet, update, scaling} {
		cluster, err := adminclient.Get(ctx, r.sre, adminv1.ReadCluster, nil, r.customer.ClusterID(name))
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(r.dir, "hosted", "mgmt-1", "*"+cluster.ClusterID+"*", "pid"))
		if err != nil || len(files) != 1 {
			t.Fatalf("the folders of the API server of %s: %v, %v", name, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		signal := syscall.SIGSTOP
		if f == terminated {
			signal = syscall.SIGKILL
			log := filepath.Join(filepath.Dir(files[0]), hostedLog)
			if err := errors.Join(os.Rename(log, log+".aside"), os.Mkdir(log, 0o700)); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, func() error { return errors.Join(os.Remove(log), os.Rename(log+".aside", log)) })
		} else {
			ends = append(ends, func() error {
				_ = syscall.Kill(pid, syscall.SIGCONT) // the HyperShift local runtime may have killed it
				return nil
			})
		}
		if err := syscall.Kill(pid, signal); err != nil {
			t.Fatal(errors.Join(err, end()))
		}
	}
	return end
}

// awaitEffect waits until a component with a full disk notices it: a database works until it needs more space.
func (r *region) awaitEffect(t *testing.T, ctx context.Context, c component, f fault) {
	t.Helper()
	if f != diskFull {
		return
	}
	eventually.Soon(t, c.process+" cannot work", func() error {
		explained, err := adminclient.Get(ctx, r.sre, adminv1.ReadRegionExplanation, nil)
		if err != nil {
			return err
		}
		for _, away := range explained.Components {
			if away.Layer == c.layer && away.Away() {
				return nil
			}
		}
		return fmt.Errorf("%s", explained.Text())
	})

}
