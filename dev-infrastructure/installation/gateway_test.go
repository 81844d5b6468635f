package installation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// The addresses of the pods of tests.
const podA, podB = "10.0.0.1", "10.0.0.2"

// pods are two pods behind a gateway.
type pods struct {
	*gateway
	servers map[string]*httptest.Server

	mu sync.Mutex
	// lost are the addresses to which no connection can be opened.
	lost map[string]bool
	// received are the requests of each pod: method and body.
	received map[string][]string
}

// startPods starts two pods with a handler, which gets the name of the pod.
func startPods(t *testing.T, handle func(pod string, w http.ResponseWriter, r *http.Request)) *pods {
	t.Helper()
	p := &pods{servers: map[string]*httptest.Server{}, lost: map[string]bool{}, received: map[string][]string{}}
	roots := x509.NewCertPool()
	for _, pod := range []string{podA, podB} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			p.mu.Lock()
			p.received[pod] = append(p.received[pod], r.Method+" "+string(body))
			p.mu.Unlock()
			handle(pod, w, r)
		}))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
		server.StartTLS()
		t.Cleanup(server.Close)
		roots.AddCert(server.Certificate())
		p.servers[pod] = server
	}
	p.gateway = &gateway{tls: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}, port: "8443", log: slog.New(slog.DiscardHandler),
		backends: map[string]*backend{}, dial: p.dialPod}
	t.Cleanup(func() { p.set(nil) })
	return p
}

func (p *pods) dialPod(ctx context.Context, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	lost := p.lost[host]
	p.mu.Unlock()
	if lost {
		return nil, errors.New("no route to the node")
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", p.servers[host].Listener.Addr().String())
}

// lose loses the node of a pod.
func (p *pods) lose(pod string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost[pod] = true
}

// count returns the number of requests of a pod.
func (p *pods) count(pod string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.received[pod])
}

// next returns the address of the pod of the next request, or nothing if there is none.
func (p *pods) next() string {
	if picked := p.pick(nil); picked != nil {
		return picked.address
	}
	return ""
}

// request sends a request through the gateway.
func (p *pods) request(method, body string) *http.Response {
	recorder := httptest.NewRecorder()
	p.ServeHTTP(recorder, httptest.NewRequest(method, "https://rp.example.com/path", strings.NewReader(body)))
	return recorder.Result()
}

// slice returns endpoints, by their addresses, and whether they are ready.
func slice(endpoints map[string]bool) *discoveryv1.EndpointSlice {
	made := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice"}}
	for address, ready := range endpoints {
		made.Endpoints = append(made.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return made
}

func respond(_ string, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

func TestRequestsGoToReadyPods(t *testing.T) {
	p := startPods(t, respond)
	p.set([]*discoveryv1.EndpointSlice{slice(map[string]bool{podA: true, podB: true})})
	for range 10 {
		if response := p.request(http.MethodGet, ""); response.StatusCode != http.StatusOK {
			t.Fatalf("got %s", response.Status)
		}
	}
	if p.count(podA) != 5 || p.count(podB) != 5 {
		t.Errorf("the pods got %d and %d requests, want 5 each", p.count(podA), p.count(podB))
	}
	p.set([]*discoveryv1.EndpointSlice{slice(map[string]bool{podA: false, podB: true})})
	for range 10 {
		p.request(http.MethodGet, "")
	}
	if p.count(podA) != 5 || p.count(podB) != 15 {
		t.Errorf("the pods got %d and %d requests, and only the second one is ready", p.count(podA), p.count(podB))
	}
	p.set(nil)
	if response := p.request(http.MethodGet, ""); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without endpoints: %s, want 503", response.Status)
	}
}

func TestOtherPodGetsRequestThatCouldNotBeSent(t *testing.T) {
	p := startPods(t, respond)
	p.set([]*discoveryv1.EndpointSlice{slice(map[string]bool{podA: true, podB: true})})
	p.lose(podA)
	for n := range 10 {
		if response := p.request(http.MethodPut, fmt.Sprint(n)); response.StatusCode != http.StatusOK {
			t.Errorf("got %s", response.Status)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, got := range p.received[podB] {
		if want := fmt.Sprintf("PUT %d", n); got != want {
			t.Errorf("the other pod got %q, want %q", got, want)
		}
	}
	if len(p.received[podB]) != 10 {
		t.Errorf("the other pod got %d requests, want 10", len(p.received[podB]))
	}
}

// TestReceivedRequestIsNotRepeated checks that a request ends with an error if its pod ends the connection without a response.
func TestReceivedRequestIsNotRepeated(t *testing.T) {
	p := startPods(t, func(string, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	p.set([]*discoveryv1.EndpointSlice{slice(map[string]bool{podA: true, podB: true})})
	if response := p.request(http.MethodPut, "once"); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %s, want 503", response.Status)
	}
	if sum := p.count(podA) + p.count(podB); sum != 1 {
		t.Errorf("the pods got %d requests, want 1", sum)
	}
}

// TestLostPodGetsNoRequests checks that probes end the requests of a lost pod, and that it gets requests again after it has returned.
func TestLostPodGetsNoRequests(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	p := startPods(t, func(pod string, w http.ResponseWriter, r *http.Request) {
		if pod == podA && r.Method == http.MethodPost {
			<-hang
		}
	})
	p.set([]*discoveryv1.EndpointSlice{slice(map[string]bool{podA: true})})
	ended := make(chan int)
	go func() { ended <- p.request(http.MethodPost, "").StatusCode }()
	eventually.Soon(t, "the request in progress", func() error {
		if p.count(podA) != 1 {
			return errors.New("it has not arrived")
		}
		return nil
	})

	p.set([]*discoveryv1.EndpointSlice{slice(map[string]bool{podA: true, podB: true})})
	p.lose(podA)
	p.probe(t.Context())
	select {
	case status := <-ended:
		t.Errorf("after one failed probe, the request ended with %d", status)
	default:
	}
	p.probe(t.Context())
	if status := <-ended; status != http.StatusServiceUnavailable {
		t.Errorf("the request in progress ended with %d, want 503", status)
	}
	if next := p.next(); next != podB+":8443" {
		t.Errorf("after two failed probes, requests go to %q", next)
	}
	p.mu.Lock()
	p.lost = map[string]bool{}
	p.mu.Unlock()
	p.probe(t.Context())
	for range 2 {
		p.request(http.MethodGet, "")
	}
	if p.count(podA) != 2 || p.count(podB) != 1 {
		t.Errorf("after a successful probe, the pods got %d and %d requests", p.count(podA), p.count(podB))
	}
}

// TestGatewayFollowsEndpoints checks that changes arrive, also after the watch has ended, and that an error keeps the known endpoints.
func TestGatewayFollowsEndpoints(t *testing.T) {
	p := startPods(t, respond)
	var mu sync.Mutex
	listed, failing, watches := slice(map[string]bool{podA: true}), false, make(chan *watch.RaceFreeFakeWatcher)
	p.list = func(context.Context) (*discoveryv1.EndpointSliceList, error) {
		mu.Lock()
		defer mu.Unlock()
		if failing {
			return nil, errors.New("the cluster is lost")
		}
		return &discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{*listed}}, nil
	}
	p.watch = func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
		made := watch.NewRaceFreeFake()
		context.AfterFunc(ctx, made.Stop)
		select {
		case watches <- made:
		case <-ctx.Done():
		}
		return made, nil
	}
	stop := p.start()
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	awaitPod := func(pod string) {
		t.Helper()
		eventually.Soon(t, "the endpoint "+pod, func() error {
			if next := p.next(); next != pod+":8443" {
				return fmt.Errorf("requests go to %q", next)
			}
			return nil
		})

	}
	first := <-watches
	awaitPod(podA)
	first.Modify(slice(map[string]bool{podB: true}))
	awaitPod(podB)
	mu.Lock()
	failing = true
	mu.Unlock()
	first.Stop()
	awaitPod(podB)
	mu.Lock()
	failing = false
	mu.Unlock()
	<-watches
	awaitPod(podA)
}
