package hostedapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedclient"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// Probes are the settings of the probes of running servers. Kubernetes has the same ones for the pod of an API server.
type Probes struct {
	// Interval is the mean pause between two probes, and Timeout bounds one.
	Interval, Timeout time.Duration
	// NotReadyFailures is the number of consecutive failed probes after which a server is not ready, and HungFailures the number of
	// consecutive probes without a response after which it is killed and restarted.
	NotReadyFailures, HungFailures int
	// Clock times the pauses and the probes; the clock of the machine if it is nil.
	Clock clock.WithDelayedExecution
}

// DefaultProbes cost one request per server in ten seconds, over a connection that stays open.
var DefaultProbes = Probes{Interval: 10 * time.Second, Timeout: 5 * time.Second, NotReadyFailures: 2, HungFailures: 3}

// watch probes a ready server until ctx ends. It stores whether the server is ready. It returns an error if the server is hung. A
// server that reports that it is not ready, for example without etcd, or that presents a wrong certificate, is not restarted: that would
// not help.
func (s *server) watch(ctx context.Context) error {
	probes := s.supervisor.options.Probes
	client, err := s.probeClient()
	if err != nil {
		return err
	}
	defer func() { client.CloseIdleConnections() }()
	failures, silent := 0, 0
	for {
		if !probes.pause(ctx) {
			return nil
		}
		err := s.check(ctx, client, probes)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			failures, silent = 0, 0
			s.updateState(func(state *State) { state.Ready, state.Message = true, "" })
			continue
		}
		// The next probe uses a new connection, and the certificates of the current spec.
		client.CloseIdleConnections()
		if next, invalid := s.probeClient(); invalid == nil {
			client = next
		}
		failures++
		var responds *kubeapi.NotReadyError
		var presents *tls.CertificateVerificationError
		if errors.As(err, &responds) || errors.As(err, &presents) {
			silent = 0
		} else if silent++; silent >= probes.HungFailures {
			return fmt.Errorf("hung: no response to %d probes in a row", silent)
		}
		if failures >= probes.NotReadyFailures {
			s.updateState(func(state *State) { state.Ready, state.Settled, state.Message = false, true, err.Error() })
		}
	}
}

// pause waits until the next probe is due. It returns false if ctx ends first.
func (p Probes) pause(ctx context.Context) bool {
	timer := p.Clock.NewTimer(backoff.Jitter(p.Interval))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// check sends one probe.
func (s *server) check(ctx context.Context, client *http.Client, probes Probes) error {
	probe, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := probes.Clock.AfterFunc(probes.Timeout, cancel)
	defer timer.Stop()
	err := kubeapi.CheckReady(probe, client, "https://127.0.0.1:"+strconv.Itoa(int(s.port.Load())))
	if err != nil && probe.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("the API server does not respond within %s", probes.Timeout)
	}
	return err
}

// ensureReaders gives the group of readers its rights. It retries until ctx ends.
func (s *server) ensureReaders(ctx context.Context) error {
	client, err := s.probeClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	hosted, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "https://127.0.0.1:" + strconv.Itoa(int(s.port.Load()))}, client)
	if err != nil {
		return err
	}
	pauses := backoff.New(firstPause, lastPause)
	for {
		err := hostedclient.EnsureReaders(ctx, hosted)
		if err == nil {
			return nil
		}
		if pauses.Wait(ctx) != nil {
			return fmt.Errorf("the API server is ready, but its readers have no rights: %w", err)
		}
	}
}

// probeClient returns a client with the certificates of the current spec.
func (s *server) probeClient() (*http.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	config, err := s.spec.probeTLSConfig()
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, nil
}
