package inside

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// administrator changes the management cluster of a test.
type administrator struct {
	t       *testing.T
	objects dynamic.Interface
}

func (a *administrator) create(resource schema.GroupVersionResource, namespace, text string) {
	a.t.Helper()
	object := &unstructured.Unstructured{}
	must.Do(a.t, json.Unmarshal([]byte(text), &object.Object))
	eventually.Soon(a.t, "the object is created", func() error {
		_, err := a.objects.Resource(resource).Namespace(namespace).Create(a.t.Context(), object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

func (a *administrator) delete(resource schema.GroupVersionResource, namespace, name string) {
	a.t.Helper()
	must.Do(a.t, a.objects.Resource(resource).Namespace(namespace).Delete(a.t.Context(), name, metav1.DeleteOptions{}))
}

// awaitReport waits until the HostedCluster has a report with a state and an outcome, and returns it with the UID of the HostedCluster.
func (a *administrator) awaitReport(state hostedreport.InsideState, outcome probe.Outcome, not string) (report *hostedreport.InsideReport, uid string) {
	a.t.Helper()
	eventually.Soon(a.t, fmt.Sprintf("the report states %s %s", state, outcome), func() error {
		hc, err := a.objects.Resource(hostedClusters).Namespace("ocm-test-1").Get(a.t.Context(), "hc", metav1.GetOptions{})
		if err != nil {
			return err
		}
		uid = string(hc.GetUID())
		if report = hostedreport.DecodeInside(hc.GetAnnotations()[hostedreport.InsideAnnotation]); report == nil || report.State != state || report.Outcome != string(outcome) || uid == not {
			return fmt.Errorf("the annotations are %v", hc.GetAnnotations())
		}
		if hc.GetAnnotations()["kept"] != "yes" {
			return errors.New("another annotation is lost")
		}
		return nil
	})

	return report, uid
}

// TestProberReportsOnAManagementCluster follows a HostedCluster on a real API server with the rights of the prober, and probes a server at
// the address of its Service.
func TestProberReportsOnAManagementCluster(t *testing.T) {
	management := kubeapitest.Start(t)
	config := must.Get(clientcmd.BuildConfigFromFlags("", management.Kubeconfig()))(t)
	objects := must.Get(dynamic.NewForConfig(config))(t)
	admin := &administrator{t, objects}
	var status atomic.Int64
	status.Store(http.StatusOK)
	port, ca := serve(t, &status)
	admin.create(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "", kubeapitest.HostedClusters)
	for _, namespace := range []string{"ocm-test-1", "ocm-test-1-hc"} {
		admin.create(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`)
	}
	service := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"kube-apiserver"},"spec":{"type":"ExternalName","externalName":"127.0.0.1","ports":[{"port":` + port + `}]}}`
	const hostedCluster = `{"apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster","metadata":{"name":"hc","annotations":{"kept":"yes"}},"spec":{"x":"y"}}`
	authorities := must.Get(json.Marshal(ca))(t)
	admin.create(hostedClusters, "ocm-test-1", hostedCluster)
	admin.create(services, "ocm-test-1-hc", service)

	limited := must.Get(clientcmd.BuildConfigFromFlags("", management.ProberKubeconfig(t)))(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	m := must.Get(NewManagement(limited, log))(t)
	checker := probe.New(probe.Options{Vantage: probe.Inside, Connections: 10})
	defer checker.Close()
	p := New(checker, m, Options{Metrics: NewMetrics(prometheus.NewRegistry()), Interval: 500 * time.Millisecond, Beat: time.Second, Log: log})
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { p.Run(ctx) })
	work.Go(func() {
		if err := m.Follow(ctx, p); err != nil {
			t.Error(err)
		}
	})
	defer work.Wait()
	defer cancel()

	eventually.Soon(t, "the HostedCluster is known", func() error {
		if p.Len() != 1 {
			return fmt.Errorf("%d clusters", p.Len())
		}
		return nil
	})

	admin.create(configMaps, "ocm-test-1-hc", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"root-ca"},"data":{"ca.crt":`+string(authorities)+`}}`)
	first, uid := admin.awaitReport(hostedreport.InsideAvailable, "", "")
	if first.CertificateEnd.Before(time.Now()) {
		t.Errorf("the certificate ends at %s", first.CertificateEnd)
	}
	eventually.Soon(t, "the heartbeat is written", func() error {
		if again, _ := admin.awaitReport(hostedreport.InsideAvailable, "", ""); !again.Observed.After(first.Observed) || !again.Since.Equal(first.Since) {
			return fmt.Errorf("first %+v, then %+v", first, again)
		}
		return nil
	})

	began := time.Now()
	status.Store(http.StatusInternalServerError)
	if down, _ := admin.awaitReport(hostedreport.InsideUnavailable, probe.Etcd, ""); down.Since.Before(began.Add(-time.Second)) || down.Detail != "status 500: etcd" {
		t.Errorf("report %+v", down)
	}
	status.Store(http.StatusOK)
	admin.awaitReport(hostedreport.InsideAvailable, "", "")

	admin.delete(services, "ocm-test-1-hc", "kube-apiserver")
	admin.awaitReport(hostedreport.InsideUnknown, "", "")
	admin.create(services, "ocm-test-1-hc", service)
	admin.awaitReport(hostedreport.InsideAvailable, "", "")

	// Another incarnation of the HostedCluster.
	admin.delete(hostedClusters, "ocm-test-1", "hc")
	admin.create(hostedClusters, "ocm-test-1", hostedCluster)
	_, next := admin.awaitReport(hostedreport.InsideAvailable, "", uid)
	if err := m.Write(ctx, Cluster{UID: uid, Namespace: "ocm-test-1", Name: "hc"}, *first); !errors.Is(err, ErrGone) {
		t.Errorf("a report about the previous HostedCluster: %v", err)
	}
	admin.delete(hostedClusters, "ocm-test-1", "hc")
	eventually.Soon(t, "the HostedCluster is forgotten", func() error {
		if p.Len() != 0 || checker.Connections() != 0 {
			return fmt.Errorf("%d clusters, %d connections", p.Len(), checker.Connections())
		}
		return nil
	})

	if err := m.Write(ctx, Cluster{UID: next, Namespace: "ocm-test-1", Name: "hc"}, *first); !errors.Is(err, ErrGone) {
		t.Errorf("a report about a deleted HostedCluster: %v", err)
	}
}

// serve starts a server with the certificate of a control plane, and returns its port and its authority. It answers with a status, and as
// an API server whose etcd is away if that is not 200.
func serve(t *testing.T, status *atomic.Int64) (port, ca string) {
	t.Helper()
	signer := must.Get(authority.Open(t.TempDir(), "root-ca"))(t)
	path := filepath.Join(t.TempDir(), "tls")
	must.Do(t, signer.IssueFor(24*time.Hour, path+".crt", path+".key", x509.Certificate{Subject: pkix.Name{CommonName: "kubernetes"}}, "kube-apiserver.ocm-test-1-hc.svc"))
	pair := must.Get(tls.LoadX509KeyPair(path+".crt", path+".key"))(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		if status.Load() != http.StatusOK {
			_, _ = io.WriteString(w, "[-]etcd failed: reason withheld\n")
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return strconv.Itoa(server.Listener.Addr().(*net.TCPAddr).Port), string(signer.CertificatePEM())
}
