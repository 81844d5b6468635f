package installation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	// outsideRate is the number of calls that an outsideLoad begins in each second.
	outsideRate = 50
	// outsideTimeout bounds a call. A call that takes longer has failed.
	outsideTimeout = 10 * time.Second
	// phaseCalls is the least number of calls in a phase from which quantiles are computed: 30 s.
	phaseCalls = 30 * outsideRate
	// changePause is the pause between two polls of an operation, and between two changes in a hosted cluster.
	changePause = 500 * time.Millisecond
)

// outsideLoad calls a region from outside of its clusters: a customer calls Azure Resource Manager, and an engineer calls admin's ingress. It begins
// outsideRate calls in each second, whether or not earlier ones have ended, and repeats none. In addition, the engineer requests elevations, and a
// customer with a cluster changes the tags of the cluster, polls the operations, and watches objects in it, each after the other.
type outsideLoad struct {
	*region
	client        *http.Client
	arm, admin    string
	customer, sre string
	subscriptions []string
	cluster       string
	stop          context.CancelFunc
	running       sync.WaitGroup

	mu     sync.Mutex
	now    *phase
	phases map[string]*phase
}

// phase is a part of the load. A call belongs to the phase in which it began.
type phase struct {
	name  string
	began time.Time
	// ended is the time of the end of the last call.
	ended time.Time
	// pending is the number of calls in progress.
	pending  int
	took     []time.Duration
	kinds    map[string]int
	failures []failedCall
}

// failedCall is a call that failed.
type failedCall struct {
	kind  string
	began time.Time
	took  time.Duration
	err   error
}

// startOutsideLoad starts the load. admin is the address of admin's ingress. cluster is the resource ID of a cluster of the customer, and
// kubeconfig a file with the customer's access to it; both may be empty.
func (r *region) startOutsideLoad(admin, cluster, kubeconfig string) *outsideLoad {
	r.t.Helper()
	l := &outsideLoad{region: r, arm: r.entra.URL(), admin: "https://" + admin, cluster: cluster, phases: map[string]*phase{}}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.authority.CertificatePEM())
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * outsideRate, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	r.t.Cleanup(transport.CloseIdleConnections)
	l.client = &http.Client{Transport: transport}
	l.customer, l.sre = r.customerToken(), r.engineerToken("oncall")
	for n := range 5 {
		id := fmt.Sprintf("5d0c8a7e-0000-4000-8000-%012d", n)
		l.subscriptions = append(l.subscriptions, id)
		for _, made := range []struct{ method, path, body string }{
			{http.MethodPut, "/subscriptions/" + id + "?api-version=2022-12-01", `{"displayName":"Load"}`},
			{http.MethodPost, registration(id), ""},
		} {
			must.Get(l.send(r.ctx, made.method, l.arm+made.path, l.customer, []byte(made.body), http.StatusOK, http.StatusCreated))(r.t)
		}
	}
	calling, stop := context.WithCancel(r.ctx)
	l.stop = stop
	l.enter("warm-up")
	l.running.Go(func() { l.callConstantly(calling) })
	l.running.Go(func() { l.elevateAgain(calling) })
	if cluster != "" {
		l.running.Go(func() { l.changeTags(calling) })
		watching := must.Get(r.hostedClient(kubeconfig))(r.t)
		l.running.Go(func() { l.watchObjects(calling, watching) })
	}
	r.t.Cleanup(func() {
		stop()
		l.running.Wait()
	})
	l.await(outsideRate)
	return l
}

// registration returns the path with which a customer registers the resource provider in a subscription.
func registration(subscription string) string {
	return "/subscriptions/" + subscription + "/providers/Microsoft.RedHatOpenShift/register?api-version=2021-04-01"
}

// customerToken returns a token of the customer for Azure Resource Manager.
func (r *region) customerToken() string {
	r.t.Helper()
	text := must.Get(os.ReadFile(r.outside.CustomerFile()))(r.t)
	var clients []struct{ TenantID, ClientID, ClientSecret string }
	if err := json.Unmarshal(text, &clients); err != nil || len(clients) != 1 {
		r.t.Fatalf("the credentials of the customer: %d, %v", len(clients), err)
	}
	return r.tokenOf(clients[0].TenantID, clients[0].ClientID, clients[0].ClientSecret, "https://management.azure.com")
}

// hostedClient returns a client of a hosted cluster.
func (r *region) hostedClient(kubeconfig string) (*clientset.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return clientset.NewForConfig(config)
}

// enter begins a phase, and returns when the calls of the phase before have ended.
func (l *outsideLoad) enter(name string) {
	l.t.Helper()
	l.mu.Lock()
	before := l.now
	l.now = &phase{name: name, began: time.Now(), kinds: map[string]int{}}
	l.phases[name] = l.now
	l.mu.Unlock()
	if before == nil {
		return
	}
	eventually.Before(l.ctx, l.t, "the end of the calls "+before.name, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if before.pending > 0 {
			return fmt.Errorf("%d are in progress", before.pending)
		}
		l.now.began = time.Now()
		return nil
	})
}

// record makes a call of a kind and records it.
func (l *outsideLoad) record(kind string, call func(context.Context) error) error {
	l.mu.Lock()
	in := l.now
	in.pending++
	l.mu.Unlock()
	began := time.Now()
	// The end of the load ends no call.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), outsideTimeout)
	defer cancel()
	err := call(ctx)
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	in.pending--
	in.ended = time.Now()
	in.took = append(in.took, took)
	in.kinds[kind]++
	if err != nil {
		in.failures = append(in.failures, failedCall{kind, began, took, err})
	}
	return err
}

// send sends a request and returns the response's body. A status other than the wanted ones is an error.
func (l *outsideLoad) send(ctx context.Context, method, url, token string, body []byte, want ...int) ([]byte, error) {
	_, text, err := l.exchange(ctx, method, url, token, body, want...)
	return text, err
}

// exchange is send, and also returns the header.
func (l *outsideLoad) exchange(ctx context.Context, method, url, token string, body []byte, want ...int) (http.Header, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := l.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && !slices.Contains(want, response.StatusCode) {
		err = fmt.Errorf("%s %s: %s: %s", method, request.URL.Path, response.Status, text)
	}
	return response.Header, text, err
}

// callConstantly begins the calls that are due at each tick. A busy machine loses ticks, and not calls.
func (l *outsideLoad) callConstantly(ctx context.Context) {
	kinds := l.schedule()
	var calls sync.WaitGroup
	defer calls.Wait()
	ticker := time.NewTicker(time.Second / outsideRate)
	defer ticker.Stop()
	began, number := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for due := int(time.Since(began) * outsideRate / time.Second); number < due; number++ {
			kind, number := kinds[number%len(kinds)], number
			calls.Go(func() { _ = l.record(kind.name, func(ctx context.Context) error { return kind.call(ctx, number) }) })
		}
	}
}

// outsideKind is a kind of calls.
type outsideKind struct {
	name  string
	count int
	call  func(ctx context.Context, number int) error
}

// schedule returns the kinds of the calls of a second, each as often as it is called. Calls of a kind are spread over the second.
func (l *outsideLoad) schedule() []outsideKind {
	get := func(base, path, token string) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			_, err := l.send(ctx, http.MethodGet, base+path, token, nil, http.StatusOK)
			return err
		}
	}
	const provider = "/providers/Microsoft.RedHatOpenShift"
	mine := "/subscriptions/" + l.subscriptions[0] + provider
	kinds := []outsideKind{
		{"list clusters", 12, get(l.arm, mine+"/hcpOpenShiftClusters?api-version="+armAPIVersion, l.customer)},
		{"list versions", 10, get(l.arm, mine+"/locations/"+l.text("region")+"/hcpOpenShiftVersions?api-version="+armAPIVersion, l.customer)},
		{"register the provider", 10, func(ctx context.Context, number int) error {
			// At most one registration of a subscription is in progress.
			_, err := l.send(ctx, http.MethodPost, l.arm+registration(l.subscriptions[number%len(l.subscriptions)]), l.customer, nil, http.StatusOK)
			return err
		}},
		{"list shards as an SRE", 5, get(l.admin, adminv1.Root+"/shards", l.sre)},
		{"list elevations as an SRE", 3, get(l.admin, adminv1.Root+"/elevations", l.sre)},
	}
	read := outsideKind{"list operations", 10, get(l.arm, provider+"/operations?api-version="+armAPIVersion, l.customer)}
	if l.cluster != "" {
		read.name, read.call = "read a cluster", get(l.arm, l.cluster+"?api-version="+armAPIVersion, l.customer)
	}
	var order []outsideKind
	left := append(kinds, read)
	for len(order) < outsideRate {
		for n := range left {
			if left[n].count > 0 {
				left[n].count--
				order = append(order, left[n])
			}
		}
	}
	return order
}

// elevateAgain requests elevations and ends them, one after the other, because an engineer may have only some that are active.
func (l *outsideLoad) elevateAgain(ctx context.Context) {
	for ctx.Err() == nil {
		_ = l.record("elevate as an SRE", l.elevate)
		sleep(ctx, changePause)
	}
}

// elevate requests an elevation and ends it.
func (l *outsideLoad) elevate(ctx context.Context) error {
	body, err := json.Marshal(adminv1.ElevationRequest{Class: adminv1.Operate, Reason: "constant load", Ticket: "INC-1", Duration: "5m"})
	if err != nil {
		return err
	}
	text, err := l.send(ctx, http.MethodPost, l.admin+adminv1.Root+"/elevations", l.sre, body, http.StatusCreated)
	if err != nil {
		return err
	}
	var created adminv1.Elevation
	if err := json.Unmarshal(text, &created); err != nil {
		return err
	}
	_, err = l.send(ctx, http.MethodDelete, l.admin+adminv1.Root+"/elevations/"+created.ID, l.sre, nil, http.StatusOK)
	return err
}

// changeTags changes the tags of the cluster until the load ends, polls each operation until it has succeeded, and reads the tags.
func (l *outsideLoad) changeTags(ctx context.Context) {
	path := l.arm + l.cluster + "?api-version=" + armAPIVersion
	for number := 0; ctx.Err() == nil; number++ {
		tags, operation := map[string]string{"load": fmt.Sprint(number)}, ""
		if l.record("change a cluster", func(ctx context.Context) error {
			body, err := json.Marshal(map[string]any{"tags": tags})
			if err != nil {
				return err
			}
			header, _, err := l.exchange(ctx, http.MethodPatch, path, l.customer, body, http.StatusOK, http.StatusCreated, http.StatusAccepted)
			operation = header.Get("Azure-AsyncOperation")
			return err
		}) != nil {
			return
		}
		for ended := operation == ""; !ended; {
			if l.record("poll an operation", func(ctx context.Context) error {
				text, err := l.send(ctx, http.MethodGet, operation, l.customer, nil, http.StatusOK)
				if err != nil {
					return err
				}
				var polled struct{ Status string }
				if err := json.Unmarshal(text, &polled); err != nil {
					return err
				}
				if ended = polled.Status == "Succeeded"; polled.Status == "Failed" || polled.Status == "Canceled" {
					return fmt.Errorf("the operation has ended: %s", text)
				}
				return nil
			}) != nil {
				return
			}
			sleep(ctx, changePause)
			if ctx.Err() != nil && !ended {
				return
			}
		}
		if l.record("read a change", func(ctx context.Context) error {
			text, err := l.send(ctx, http.MethodGet, path, l.customer, nil, http.StatusOK)
			if err != nil {
				return err
			}
			var stored struct{ Tags map[string]string }
			if err := json.Unmarshal(text, &stored); err != nil {
				return err
			}
			if stored.Tags["load"] != tags["load"] {
				return fmt.Errorf("the cluster has the tags %v, want %v", stored.Tags, tags)
			}
			return nil
		}) != nil {
			return
		}
	}
}

// watchObjects changes a ConfigMap in the customer's cluster, and expects each change in a watch that begins once.
func (l *outsideLoad) watchObjects(ctx context.Context, client *clientset.Clientset) {
	const namespace, name = "default", "outside-load"
	maps := client.CoreV1().ConfigMaps(namespace)
	var events watch.Interface
	if l.record("watch objects in a cluster", func(context.Context) (err error) {
		events, err = maps.Watch(l.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		return err
	}) != nil {
		return
	}
	defer events.Stop()
	for number := 0; ctx.Err() == nil; number++ {
		value := fmt.Sprint(number)
		if l.record("change an object in a cluster, and watch it", func(ctx context.Context) error {
			changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"number": value}}
			var err error
			if number == 0 {
				_, err = maps.Create(ctx, changed, metav1.CreateOptions{})
			} else {
				_, err = maps.Update(ctx, changed, metav1.UpdateOptions{})
			}
			if err != nil {
				return err
			}
			for {
				select {
				case <-ctx.Done():
					return fmt.Errorf("the watch has not returned the change %s: %w", value, ctx.Err())
				case event, open := <-events.ResultChan():
					if !open {
						return fmt.Errorf("the watch has ended before the change %s", value)
					}
					if got, ok := event.Object.(*corev1.ConfigMap); ok && got.Data["number"] == value {
						return nil
					}
				}
			}
		}) != nil {
			return
		}
		sleep(ctx, changePause)
	}
}

// sleep waits, until ctx ends at the latest.
func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// await waits until a number of calls has been made in the current phase.
func (l *outsideLoad) await(calls int) {
	l.t.Helper()
	eventually.Before(l.ctx, l.t, "calls from outside", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if made := len(l.now.took); made < calls {
			return fmt.Errorf("%d of %d calls in the phase %s", made, calls, l.now.name)
		}
		return nil
	})
}

// end ends the load and waits for the calls in progress. Calls may have failed only in the tolerated phases.
func (l *outsideLoad) end(tolerated ...string) {
	l.t.Helper()
	l.stop()
	l.running.Wait()
	for name, p := range l.phases {
		slices.Sort(p.took)
		if len(p.failures) > 0 && !slices.Contains(tolerated, name) {
			l.t.Errorf("%d calls from outside failed in the phase %q, want 0", len(p.failures), name)
		}
		for _, failed := range p.failures {
			l.t.Logf("%s: %s, begun after %v, failed after %v: %v", name, failed.kind, failed.began.Sub(p.began).Round(time.Millisecond), failed.took.Round(time.Millisecond), failed.err)
		}
	}
}

// describe adds a phase to the transcript, with the ratio of its 99th percentile to that of another phase.
func (l *outsideLoad) describe(name, quiet string) {
	l.t.Helper()
	p, q := l.phases[name], l.phases[quiet]
	var kinds []string
	for kind, count := range p.kinds {
		kinds = append(kinds, fmt.Sprintf("%d × %s", count, kind))
	}
	slices.Sort(kinds)
	l.log("%d calls from outside %s in %v, %d failed; p50 %v, p99 %v, which is %.1f × that of the quiet phase (goal: at most 3): %s", len(p.took), name, p.ended.Sub(p.began).Round(time.Second), len(p.failures),
		quantile(p.took, 0.5).Round(time.Millisecond/10), quantile(p.took, 0.99).Round(time.Millisecond/10),
		float64(quantile(p.took, 0.99))/float64(max(quantile(q.took, 0.99), 1)), strings.Join(kinds, ", "))
	if len(p.failures) > 0 {
		first, last := p.failures[0].began, p.failures[0].began
		for _, failed := range p.failures {
			if failed.began.Before(first) {
				first = failed.began
			}
			if failed.began.After(last) {
				last = failed.began
			}
		}
		l.log("the failed calls %s had begun %v to %v after its begin", name, first.Sub(p.began).Round(time.Millisecond), last.Sub(p.began).Round(time.Millisecond))
	}
}

// quantile returns a quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
