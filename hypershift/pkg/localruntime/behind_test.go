package localruntime

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// heldWatch is a way to the management cluster on which the watch of one resource stops at the first event with a text in it,
// until it is released: a cache that is behind.
type heldWatch struct {
	resource, text string
	release        chan struct{}
}

// wrap is a rest.Config's wrapper.
func (h *heldWatch) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && request.URL.Query().Get("watch") != "" && strings.HasSuffix(request.URL.Path, "/"+h.resource) {
			response.Body = &heldBody{ReadCloser: response.Body, h: h, closed: make(chan struct{})}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

type heldBody struct {
	io.ReadCloser
	h      *heldWatch
	tail   []byte // of what was read, for a text may come in two pieces
	held   bool
	once   sync.Once
	closed chan struct{}
}

// Read keeps what it has read to itself from the text on.
func (b *heldBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.tail = append(b.tail, into[:n]...)
	b.held = b.held || bytes.Contains(b.tail, []byte(b.h.text))
	b.tail = bytes.Clone(b.tail[max(0, len(b.tail)-len(b.h.text)):])
	if b.held {
		select {
		case <-b.h.release:
		case <-b.closed:
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

// TestStatusFollowsWhileTheCacheIsBehind: the runtime decided on a HostedControlPlane older than its own last write of it, found
// the status as it should be, and nothing made it look again, for its own writes do not wake it.
func TestStatusFollowsWhileTheCacheIsBehind(t *testing.T) {
	t.Parallel()
	m := newManagementCluster(t)
	held := &heldWatch{resource: "hostedcontrolplanes", text: `"nodeCount":4`, release: make(chan struct{})}
	m.config = rest.CopyConfig(m.config)
	m.config.Wrap(held.wrap)
	m.start(t, m.options(t.TempDir(), nil))
	s := m.sample(t, "behind")
	s.create(t)
	s.apply(t, s.pool)
	nodes := func(want int) {
		t.Helper()
		await(t, m.client, time.Minute, &hyperv1.HostedControlPlaneList{}, client.ObjectKey{Namespace: s.controlPlane(), Name: s.name}, func(hcp *hyperv1.HostedControlPlane) error {
			if got := hcp.Status.NodeCount; got == nil || *got != want {
				return fmt.Errorf("nodeCount is %v, want %d", got, want)
			}
			return nil
		})
	}
	nodes(3)
	s.setPool(t, int64(4), "spec", "replicas")
	s.apply(t, s.pool)
	nodes(4) // which the runtime has written, and does not see

	s.setPool(t, int64(3), "spec", "replicas")
	s.apply(t, s.pool)
	s.waitPool(t, time.Minute, poolReady(3))
	for range 2 { // When the label was put back for the second time, a pass is over that knew of 3 nodes.
		hc := s.hostedCluster(t)
		base := hc.DeepCopy()
		delete(hc.Labels, hyperv1.HostedClusterSizeLabel)
		if err := m.client.Patch(t.Context(), hc, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
		s.waitCluster(t, time.Minute, func(hc *hyperv1.HostedCluster) error {
			if hc.Labels[hyperv1.HostedClusterSizeLabel] == "" {
				return fmt.Errorf("the label is still away")
			}
			return nil
		})
	}
	close(held.release)
	nodes(3)
	s.delete(t)
}
