package emulator_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// benchBody returns a document of about 1 KB, the size of a cluster document.
func benchBody(id, pk string, n int64) []byte {
	return fmt.Appendf(nil, `{"id":%q,"partitionKey":%q,"n":%d,"padding":%q}`, id, pk, n, strings.Repeat("0123456789", 90))
}

// openContainer starts an emulator with a container.
func openContainer(b testing.TB, o emulator.Options) (*emulator.Server, *azcosmos.ContainerClient, *httptest.Server) {
	b.Helper()
	o.DataDir, o.Key = b.TempDir(), emulator.WellKnownKey
	s := must.Get(emulator.Open(o))(b)
	h := httptest.NewServer(s)
	b.Cleanup(func() {
		h.Close()
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	client := newClient(b, h.URL)
	ctx := context.Background()
	must.Get(client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "db"}, nil))(b)
	db := must.Get(client.NewDatabase("db"))(b)
	props := azcosmos.ContainerProperties{ID: "items",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/partitionKey"}, Version: 2}}
	must.Get(db.CreateContainer(ctx, props, nil))(b)
	c := must.Get(db.NewContainer("items"))(b)
	return s, c, h
}

func newClient(t testing.TB, url string) *azcosmos.Client {
	t.Helper()
	cred := must.Get(azcosmos.NewKeyCredential(emulator.WellKnownKey))(t)
	transport := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 256}}
	client := must.Get(azcosmos.NewClientWithKey(url, cred, &azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: transport}}))(t)
	t.Cleanup(client.Close)
	return client
}

const benchConcurrency = 32 // per processor

// measure calls do from many goroutines and reports the rate and the quantiles of the latency.
func measure(b *testing.B, unit string, do func(n int64) error) (perSecond float64) {
	b.Helper()
	var n atomic.Int64
	var mu sync.Mutex
	var all []time.Duration
	b.SetParallelism(benchConcurrency)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		var mine []time.Duration
		for pb.Next() {
			started := time.Now()
			if err := do(n.Add(1)); err != nil {
				b.Error(err)
				return
			}
			mine = append(mine, time.Since(started))
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, mine...)
	})
	perSecond = float64(b.N) / b.Elapsed().Seconds()
	b.ReportMetric(perSecond, unit)
	slices.Sort(all)
	for q, name := range map[float64]string{0.5: "p50-ms", 0.99: "p99-ms"} {
		b.ReportMetric(float64(all[int(q*float64(len(all)-1))].Microseconds())/1000, name)
	}
	return perSecond
}

// BenchmarkUpsert and BenchmarkPointRead use the published client over HTTP. Client and server share the processors of one
// process. The baseline of the same run is the storage engine alone, with one durable write after the other.
func BenchmarkUpsert(b *testing.B) {
	baseline := rawPuts(b)
	s, c, _ := openContainer(b, emulator.Options{})
	before := s.Stats()
	rate := measure(b, "upserts/s", func(n int64) error {
		key := fmt.Sprintf("sub-%d", n%16)
		_, err := c.UpsertItem(context.Background(), azcosmos.NewPartitionKeyString(key), benchBody(fmt.Sprintf("item-%d", n%4096), key, n), nil)
		return err
	})
	after := s.Stats()
	b.ReportMetric(float64(after.Writes-before.Writes)/float64(max(1, after.Commits-before.Commits)), "writes/fsync")
	b.ReportMetric(baseline, "raw-puts/s")
	b.ReportMetric(rate/baseline, "x-raw")
}

func BenchmarkPointRead(b *testing.B) {
	_, c, _ := openContainer(b, emulator.Options{})
	for i := range 1024 {
		key := fmt.Sprintf("sub-%d", i%16)
		must.Get(c.UpsertItem(context.Background(), azcosmos.NewPartitionKeyString(key), benchBody(fmt.Sprintf("item-%d", i), key, 0), nil))(b)
	}
	measure(b, "reads/s", func(n int64) error {
		n %= 1024
		_, err := c.ReadItem(context.Background(), azcosmos.NewPartitionKeyString(fmt.Sprintf("sub-%d", n%16)), fmt.Sprintf("item-%d", n), nil)
		return err
	})
}

// rawPuts returns the durable writes per second of the storage engine alone, without group commit.
func rawPuts(b *testing.B) float64 {
	b.Helper()
	db := must.Get(bolt.Open(filepath.Join(b.TempDir(), "raw.db"), 0o600, &bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType}))(b)
	defer func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	}()
	const puts = 1000
	started := time.Now()
	for i := range puts {
		must.Do(b, db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			return bucket.Put(fmt.Appendf(nil, "item-%d", i), benchBody("x", "y", int64(i)))
		}))
	}
	return puts / time.Since(started).Seconds()
}
