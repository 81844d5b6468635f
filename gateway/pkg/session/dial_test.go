package session

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// ways records the ways that a Dialer tries. Those with an error fail.
type ways struct {
	tried   []string
	failing map[string]error
}

func (w *ways) try(way string) (net.Conn, error) {
	w.tried = append(w.tried, way)
	if err := w.failing[strings.Fields(way)[0]]; err != nil {
		return nil, err
	}
	conn, other := net.Pipe()
	return conn, other.Close()
}

func (w *ways) Dial(_ context.Context, managementCluster, clusterID string) (net.Conn, error) {
	return w.try("tunnel " + managementCluster + " " + clusterID)
}

func (w *ways) direct(_ context.Context, network, address string) (net.Conn, error) {
	return w.try("direct " + network + " " + address)
}

// TestOrderOfWays dials with each combination of ways that work.
func TestOrderOfWays(t *testing.T) {
	const direct, tunnel = "direct tcp api.example:443", "tunnel mgmt-1 c"
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		restricted, noTunnels, inServiceCluster bool
		failing                                 map[string]error
		want                                    []string
		fails                                   bool
	}{
		"public":                      {want: []string{direct}},
		"public, load balancer away":  {failing: map[string]error{"direct": broken}, want: []string{direct, tunnel}},
		"public, nothing works":       {failing: map[string]error{"direct": broken, "tunnel": broken}, want: []string{direct, tunnel}, fails: true},
		"public without tunnels":      {noTunnels: true, failing: map[string]error{"direct": broken}, want: []string{direct}, fails: true},
		"in the service cluster":      {inServiceCluster: true, failing: map[string]error{"direct": broken}, want: []string{direct}, fails: true},
		"restricted":                  {restricted: true, want: []string{tunnel}},
		"restricted, tunnel away":     {restricted: true, failing: map[string]error{"tunnel": broken}, want: []string{tunnel, direct}},
		"restricted, nothing works":   {restricted: true, failing: map[string]error{"direct": broken, "tunnel": broken}, want: []string{tunnel, direct}, fails: true},
		"restricted, without tunnels": {restricted: true, noTunnels: true, want: []string{direct}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &ways{failing: test.failing}
			var tunnels Tunnels = w
			if test.noTunnels {
				tunnels = nil
			}
			target := DialTarget{Address: "api.example:443", ManagementCluster: "mgmt-1", ClusterID: "c", Restricted: test.restricted}
			if test.inServiceCluster {
				target.ManagementCluster, target.ClusterID = "", ""
			}
			conn, err := NewDialer(w.direct, tunnels, prometheus.NewPedanticRegistry()).Dial(t.Context(), target)
			if test.fails != (err != nil) || test.fails && !errors.Is(err, broken) {
				t.Errorf("%v", err)
			}
			if conn != nil {
				_ = conn.Close()
			}
			if diff := cmp.Diff(test.want, w.tried); diff != "" {
				t.Error(diff)
			}
		})
	}
}
