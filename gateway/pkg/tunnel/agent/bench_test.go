package agent_test

import (
	"net"
	"testing"
	"time"
)

// BenchmarkEcho sends 1 MiB to an API server and back, in turn through the tunnel and directly, and reports the ratio. Gateway, agent and server share the
// processors.
func BenchmarkEcho(b *testing.B) {
	r := newRegion(b, 1, nil)
	r.serve(clusterID, echo)
	r.start()
	address, err := r.clusters.Address(b.Context(), clusterID)
	if err != nil {
		b.Fatal(err)
	}
	direct, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = direct.Close() }()
	tunneled := r.dial(clusterID)
	data := make([]byte, 1<<20)
	var times [2]time.Duration
	for b.Loop() {
		for i, conn := range []net.Conn{direct, tunneled} {
			began := time.Now()
			if err := exchange(conn, data); err != nil {
				b.Fatal(err)
			}
			times[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(times[1])/float64(times[0]), "tunnel/direct")
}

// BenchmarkConnection opens a connection and exchanges one byte, in turn through the tunnel and directly, and reports the ratio.
func BenchmarkConnection(b *testing.B) {
	r := newRegion(b, 1, nil)
	r.serve(clusterID, echo)
	r.start()
	address, err := r.clusters.Address(b.Context(), clusterID)
	if err != nil {
		b.Fatal(err)
	}
	var times [2]time.Duration
	for b.Loop() {
		for i, dial := range []func() (net.Conn, error){
			func() (net.Conn, error) { return net.Dial("tcp", address) },
			func() (net.Conn, error) { return r.replica(0).Dial(b.Context(), managementCluster, clusterID) },
		} {
			began := time.Now()
			conn, err := dial()
			if err != nil {
				b.Fatal(err)
			}
			if err := exchange(conn, []byte("x")); err != nil {
				b.Fatal(err)
			}
			times[i] += time.Since(began)
			_ = conn.Close()
		}
	}
	b.ReportMetric(float64(times[1])/float64(times[0]), "tunnel/direct")
}
