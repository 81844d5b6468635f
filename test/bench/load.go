package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// A load lasts loadTime. Writes run with loadClients concurrent requests, so that durable writes share their syncs. Reads run
// with readClients: client and servers share the cores, so more concurrency would only add waiting.
const (
	loadTime    = 5 * time.Second
	loadClients = 16
	readClients = 8
)

// load calls do from the given number of goroutines for loadTime. It returns the rate, the latencies and all errors.
func load(ctx context.Context, callers int, do func(ctx context.Context, n int64) error) (perSecond float64, samples []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	var mu sync.Mutex
	var failures []error
	var count atomic.Int64
	var clients sync.WaitGroup
	began := time.Now()
	for range callers {
		clients.Go(func() {
			var own []time.Duration
			for ctx.Err() == nil {
				sent := time.Now()
				if err := do(ctx, count.Add(1)); err != nil {
					if ctx.Err() == nil {
						mu.Lock()
						failures = append(failures, err)
						mu.Unlock()
					}
					break
				}
				own = append(own, time.Since(sent))
			}
			mu.Lock()
			samples = append(samples, own...)
			mu.Unlock()
		})
	}
	clients.Wait()
	return float64(len(samples)) / time.Since(began).Seconds(), samples, errors.Join(failures...)
}

// measureReads measures GET of one cluster through the frontend, with /healthz of the frontend as the baseline.
func measureReads(ctx context.Context, region *local.Region, _ options, report *report) error {
	endpoints := region.Endpoints()
	c, err := customer.New(ctx, endpoints, "22222222-0000-0000-0000-000000000002", "read")
	if err != nil {
		return err
	}
	if _, err := c.Put(ctx, c.ClusterID("readme"), c.ClusterBody("readme")); err != nil {
		return err
	}
	identity, err := mesh.LoadIdentity(endpoints.Identities[string(mesh.ARMFrontDoor)])
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: identity.ClientTLS(mesh.Frontend), MaxIdleConnsPerHost: loadClients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	token, err := c.ARMToken(ctx)
	if err != nil {
		return err
	}
	get := func(url string) func(context.Context, int64) error {
		return func(ctx context.Context, _ int64) error { return fetch(ctx, client, url, token) }
	}
	perSecond, samples, err := load(ctx, readClients, get("https://"+endpoints.Frontend+c.ClusterID("readme")+"?api-version="+customer.APIVersion))
	if err != nil {
		return err
	}
	baseline, _, err := load(ctx, readClients, get("https://"+endpoints.Frontend+"/healthz"))
	if err != nil {
		return err
	}
	report.line("GET of a cluster through the frontend", fmt.Sprintf("%.0f/s, p99 %s", perSecond, round(quantile(samples, 0.99))),
		fmt.Sprintf("goal: 3000/s, p99 10ms; %.2f of /healthz", perSecond/baseline))
	return nil
}

func fetch(ctx context.Context, client *http.Client, url, token string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(body))
	}
	return err
}

// measureStore measures writes and reads of the Cosmos DB emulator with the published client, through internal/database.
func measureStore(ctx context.Context, region *local.Region, _ options, report *report) error {
	endpoints := region.Endpoints()
	db, err := endpoints.OpenStore(ctx, "backend")
	if err != nil {
		return err
	}
	defer db.Close()
	const subscription = "22222222-0000-0000-0000-000000000003"
	key := func(n int64) database.Key {
		return database.Key{SubscriptionID: subscription, ResourceID: fmt.Sprintf("/subscriptions/%s/reservations/bench/%d", subscription, n)}
	}
	writes, _, err := load(ctx, loadClients, func(ctx context.Context, n int64) error {
		batch := db.NewBatch(subscription)
		database.Create(batch, db.Reservations(), key(n), database.ReservationDocument{Kind: "bench", Name: fmt.Sprint(n)})
		return batch.Commit(ctx)
	})
	if err != nil {
		return err
	}
	reads, _, err := load(ctx, loadClients, func(ctx context.Context, n int64) error {
		_, err := db.Reservations().Get(ctx, key(1+n%1000))
		return err
	})
	if err != nil {
		return err
	}
	report.line("Cosmos DB emulator: durable batches through azcosmos", fmt.Sprintf("%.0f/s", writes), "goal: 3000/s; client and server share the cores")
	report.line("Cosmos DB emulator: point reads through azcosmos", fmt.Sprintf("%.0f/s", reads), "goal: 10000/s; client and server share the cores")
	return nil
}
