package databasetest_test

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// BenchmarkGet measures a point read over TLS, with the caller and the emulator in one process. On a busy machine the
// CPU time of both sides (cpu-µs/op) is more meaningful than the elapsed time.
func BenchmarkGet(b *testing.B) {
	e := must.Get(emulator.Open(emulator.Options{DataDir: b.TempDir(), Key: emulator.WellKnownKey}))(b)
	account := httptest.NewTLSServer(e)
	b.Cleanup(func() {
		account.Close()
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	})
	ca := filepath.Join(b.TempDir(), "ca.crt")
	must.Do(b, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: account.Certificate().Raw}), 0o600))
	db := must.Get(database.Open(b.Context(), database.Options{Endpoint: account.URL, Key: emulator.WellKnownKey, CAFile: ca}))(b)
	b.Cleanup(db.Close)
	must.Do(b, db.EnsureSchema(b.Context()))
	const subscription, documents = "22222222-0000-0000-0000-000000000003", 100
	key := func(n int64) database.Key {
		return database.Key{SubscriptionID: subscription, ResourceID: fmt.Sprintf("/subscriptions/%s/reservations/bench/%d", subscription, n%documents)}
	}
	batch := db.NewBatch(subscription)
	for n := range int64(documents) {
		database.Create(batch, db.Reservations(), key(n), database.ReservationDocument{Kind: "bench", Name: fmt.Sprint(n)})
	}
	must.Do(b, batch.Commit(b.Context()))
	var count atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(8)
	b.ResetTimer()
	before := cpuTime(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := db.Reservations().Get(b.Context(), key(count.Add(1))); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/1000, "cpu-µs/op")
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
