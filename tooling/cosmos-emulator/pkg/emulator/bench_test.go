package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// benchBody is a document of about 1 KB, the size of a cluster's.
func benchBody(id, pk string, n int64) []byte {
	return fmt.Appendf(nil, `{"id":%q,"partitionKey":%q,"n":%d,"padding":%q}`, id, pk, n, strings.Repeat("0123456789", 90))
}

func openContainer(b testing.TB, o emulator.Options) (*emulator.Server, *azcosmos.ContainerClient, *httptest.Server) {
	b.Helper()
	o.DataDir, o.Key = b.TempDir(), emulator.WellKnownKey
	s, err := emulator.Open(o)
	if err != nil {
		b.Fatal(err)
	}
	h := httptest.NewServer(s)
	b.Cleanup(func() {
		h.Close()
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	client := newClient(b, h.URL)
	ctx := context.Background()
	if _, err := client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "db"}, nil); err != nil {
		b.Fatal(err)
	}
	db, err := client.NewDatabase("db")
	if err != nil {
		b.Fatal(err)
	}
	props := azcosmos.ContainerProperties{ID: "items",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/partitionKey"}, Version: 2}}
	if _, err := db.CreateContainer(ctx, props, nil); err != nil {
		b.Fatal(err)
	}
	c, err := db.NewContainer("items")
	if err != nil {
		b.Fatal(err)
	}
	return s, c, h
}

func newClient(t testing.TB, url string) *azcosmos.Client {
	t.Helper()
	cred, err := azcosmos.NewKeyCredential(emulator.WellKnownKey)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 256}}
	client, err := azcosmos.NewClientWithKey(url, cred, &azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

const benchConcurrency = 32 // per processor

// BenchmarkUpsert and the other benchmarks go through the published client over HTTP, client and server in one
// process, so they share the processors; BenchmarkRawPut is the engine alone, one fsync for every write.
func BenchmarkUpsert(b *testing.B) {
	s, c, _ := openContainer(b, emulator.Options{})
	before := s.Stats()
	var n atomic.Int64
	b.SetParallelism(benchConcurrency)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := n.Add(1)
			pk := fmt.Sprintf("sub-%d", i%16)
			if _, err := c.UpsertItem(context.Background(), azcosmos.NewPartitionKeyString(pk), benchBody(fmt.Sprintf("item-%d", i%4096), pk, i), nil); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "upserts/s")
	after := s.Stats()
	b.ReportMetric(float64(after.Ops-before.Ops)/float64(max(1, after.Groups-before.Groups)), "writes/fsync")
}

func BenchmarkPointRead(b *testing.B) {
	_, c, _ := openContainer(b, emulator.Options{})
	for i := range 1024 {
		pk := fmt.Sprintf("sub-%d", i%16)
		if _, err := c.UpsertItem(context.Background(), azcosmos.NewPartitionKeyString(pk), benchBody(fmt.Sprintf("item-%d", i), pk, 0), nil); err != nil {
			b.Fatal(err)
		}
	}
	var n atomic.Int64
	b.SetParallelism(benchConcurrency)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := n.Add(1) % 1024
			pk := fmt.Sprintf("sub-%d", i%16)
			if _, err := c.ReadItem(context.Background(), azcosmos.NewPartitionKeyString(pk), fmt.Sprintf("item-%d", i), nil); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
}

// BenchmarkRawPut is the baseline: the engine's own durable write of the same document, nobody to share the fsync.
func BenchmarkRawPut(b *testing.B) {
	db, err := bolt.Open(filepath.Join(b.TempDir(), "raw.db"), 0o600, &bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	}()
	b.ResetTimer()
	for i := range b.N {
		err := db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("b"))
			return errors.Join(err, bucket.Put(fmt.Appendf(nil, "item-%d", i%4096), benchBody("x", "y", int64(i))))
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
}
