package kubeapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	status, body := http.StatusOK, "[+]ping ok\n[+]etcd ok\nreadyz check passed\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/readyz?verbose" {
			t.Errorf("requested %s", r.URL)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	if err := CheckReady(t.Context(), server.Client(), server.URL+"/"); err != nil {
		t.Errorf("a ready server: %v", err)
	}
	status, body = http.StatusInternalServerError, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]etcd-readiness failed: reason withheld\nreadyz check failed\n"
	var notReady *NotReadyError
	if err := CheckReady(t.Context(), server.Client(), server.URL); !errors.As(err, &notReady) {
		t.Fatalf("a server without etcd: %v", err)
	}
	if diff := cmp.Diff([]string{"etcd", "etcd-readiness"}, notReady.Checks); diff != "" {
		t.Errorf("failed checks (-want +got):\n%s", diff)
	}
	url := server.URL
	server.Close()
	if err := CheckReady(t.Context(), http.DefaultClient, url); err == nil || errors.As(err, &notReady) {
		t.Errorf("a server that is away: %v", err)
	}
}

func TestHungServerIsNotReady(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var notReady *NotReadyError
	if err := CheckReady(ctx, server.Client(), server.URL); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &notReady) {
		t.Errorf("got %v", err)
	}
}
