package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/observer"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// Server is the API server of a cluster.
type Server struct {
	Cluster   adminv1.Cluster
	endpoints local.Endpoints
	// dir is the folder of the API server.
	dir string
}

// Find returns the API server of a cluster that admin describes, in the region with a state folder.
func Find(endpoints local.Endpoints, stateDir string, cluster adminv1.Cluster) (*Server, error) {
	folders, err := filepath.Glob(filepath.Join(stateDir, "hosted", cluster.ProvisionShard, "*"+cluster.ClusterID+"*"))
	if err != nil {
		return nil, err
	}
	if len(folders) != 1 {
		return nil, fmt.Errorf("%s has not one folder of an API server: %v", cluster.ResourceID, folders)
	}
	return &Server{cluster, endpoints, folders[0]}, nil
}

// Cause is a cause for which the API of a customer fails.
type Cause struct {
	Name string
	// Concern has the kind and the summary of the concern that names the fault, and API is the state of the API meanwhile.
	Concern adminv1.HealthConcern
	API     string
	// Before is the concern of another fault that monitor may name until it has enough evidence; empty if there is none.
	Before string
	// begin breaks the API server, and returns what repairs it.
	begin func(context.Context, *Server) (undo func(context.Context) error, err error)
	// provoke must be repeated until monitor has named the fault, and as long as the fault lasts if lasting is true. It may be nil.
	provoke func(context.Context, *Server) error
	lasting bool
}

// Causes returns all causes: the process of the API server, its etcd, its certificate, the way to it, and too little CPU for its load.
func Causes() []Cause {
	return []Cause{
		{Name: "process", Concern: adminv1.HealthConcern{Kind: "api_unreachable", Summary: "no connection to it can be opened"}, API: adminv1.HealthUnavailable, begin: kill},
		{Name: "etcd", Concern: adminv1.HealthConcern{Kind: "etcd_fails", Summary: "its etcd does not answer"}, API: adminv1.HealthUnavailable, begin: revokeEtcd},
		{Name: "certificate", Concern: adminv1.HealthConcern{Kind: "certificate_expired", Summary: "its serving certificate has expired"}, API: adminv1.HealthUnavailable, begin: expire,
			// Monitor opens a new connection, which has the certificate, after a probe without an answer.
			provoke: func(ctx context.Context, s *Server) error { return s.holdProbe(ctx, 3500*time.Millisecond) }},
		{Name: "way", Concern: adminv1.HealthConcern{Kind: "way_broken", Summary: "the way to it is broken, and its control plane works"}, API: adminv1.HealthUnavailable,
			Before: "api_unreachable", begin: breakEndpoint},
		{Name: "overload", Concern: adminv1.HealthConcern{Kind: "slow", Summary: "it answers slowly"}, API: adminv1.HealthAvailable,
			begin: func(context.Context, *Server) (func(context.Context) error, error) {
				return func(context.Context) error { return nil }, nil
			},
			// Probes are exempt from the API server's own limits of requests, so that they only wait longer.
			provoke: func(ctx context.Context, s *Server) error { return s.holdProbe(ctx, 1700*time.Millisecond) }, lasting: true},
	}
}

// Misleading returns the concerns of a journal that name another fault. A slow API misleads nobody: on a busy machine each API can be slow.
func (f *Cause) Misleading(journal []adminv1.JournalEntry) []string {
	var kinds []string
	for _, other := range Causes() {
		if kind := other.Concern.Kind; kind != f.Concern.Kind && kind != f.Before && other.API == adminv1.HealthUnavailable && slices.ContainsFunc(journal, func(e adminv1.JournalEntry) bool {
			return e.Event == adminv1.JournalConcernBegan && e.Kind == kind
		}) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Running is a fault that lasts until End.
type Running struct {
	fault  *Cause
	server *Server
	undo   func(context.Context) error
}

// Begin injects the fault into an API server.
func (f *Cause) Begin(ctx context.Context, server *Server) (*Running, error) {
	undo, err := f.begin(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("injecting the fault %s: %w", f.Name, err)
	}
	return &Running{f, server, undo}, nil
}

// Provoke makes monitor notice the fault. It must be repeated until monitor has named it; afterwards with named, it keeps up those faults
// that only last while they are repeated. It returns after about 30 s, or at once if the fault needs nothing.
func (r *Running) Provoke(ctx context.Context, named bool) error {
	if r.fault.provoke == nil || named && !r.fault.lasting {
		return nil
	}
	return r.fault.provoke(ctx, r.server)
}

// End ends the fault, also if the context of the test has ended. Further calls have no effect.
func (r *Running) End(ctx context.Context) error {
	undo := r.undo
	r.undo = nil
	if undo == nil {
		return nil
	}
	return undo(context.WithoutCancel(ctx))
}

// pid returns the process of the API server.
func (s *Server) pid() (int, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// Signal sends a signal to the API server.
func (s *Server) Signal(signal syscall.Signal) error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, signal)
}

// holdProbe stops the API server for a time in which monitor's next regular probe arrives.
func (s *Server) holdProbe(ctx context.Context, hold time.Duration) error {
	const margin = 300 * time.Millisecond
	pid, err := s.pid()
	if err != nil {
		return err
	}
	next := probe.NextTime(s.Cluster.UID, observer.Interval, time.Now().Add(margin))
	if err := backoff.Sleep(ctx, time.Until(next.Add(-margin))); err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return errors.Join(backoff.Sleep(ctx, margin+hold), syscall.Kill(pid, syscall.SIGCONT))
}

// Kill ends the API server, and keeps it from being restarted with a folder in place of its log.
func (s *Server) Kill() (undo func() error, err error) {
	undo, err = aside(filepath.Join(s.dir, "kube-apiserver.log"), nil)
	if err != nil {
		return nil, err
	}
	if err := s.Signal(syscall.SIGKILL); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// Stop stops the API server without ending it. The HyperShift local runtime may end it.
func (s *Server) Stop() (undo func() error, err error) {
	pid, err := s.pid()
	if err != nil {
		return nil, err
	}
	undo = func() error {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		return nil
	}
	return undo, syscall.Kill(pid, syscall.SIGSTOP)
}

func kill(_ context.Context, s *Server) (undo func(context.Context) error, err error) {
	repair, err := s.Kill()
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return repair() }, nil
}

// management returns a client of the management cluster.
func (s *Server) management() (dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.endpoints.Kubeconfigs[s.Cluster.ProvisionShard])
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(config)
}

// findFile returns the file with a name below a folder.
func findFile(dir, name string) (found string, err error) {
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == name {
			found = path
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("no file %s is below %s", name, dir)
	}
	return found, err
}

// userOf returns the user of etcd that belongs to a cluster.
func userOf(users []string, clusterID string) (string, error) {
	i := slices.IndexFunc(users, func(user string) bool { return strings.Contains(user, clusterID) })
	if i < 0 {
		return "", fmt.Errorf("no user of etcd is of %s: %q", clusterID, users)
	}
	return users[i], nil
}
