package emulator_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// childDataDir is the environment variable that makes the test binary run the server for TestAcknowledgedWritesSurviveKill.
const childDataDir = "COSMOS_EMULATOR_TEST_DATA_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDataDir); dir != "" {
		fmt.Fprintln(os.Stderr, serveChild(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func serveChild(dir string) error {
	s, err := emulator.Open(emulator.Options{DataDir: dir, Key: emulator.WellKnownKey})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	return http.Serve(l, s)
}

func startChild(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDataDir+"="+dir)
	cmd.Stderr = os.Stderr
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have been killed by the test
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	return cmd, strings.TrimSpace(line)
}

// TestAcknowledgedWritesSurviveKill kills the server with SIGKILL during concurrent writes, several times. Afterwards every
// acknowledged version must be stored, batches must be complete, and a change feed position from before the kill must
// lead to all later changes.
func TestAcknowledgedWritesSurviveKill(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	cmd, url := startChild(t, dir)
	client := newClient(t, url)
	must.Get(client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "db"}, nil))(t)
	db := must.Get(client.NewDatabase("db"))(t)
	must.Get(db.CreateContainer(ctx, azcosmos.ContainerProperties{ID: "items",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}, Version: 2}}, nil))(t)
	const writers, rounds, writesPerRound = 8, 4, 150
	acked := make([]int, writers) // the last acknowledged version of each writer's pair of items
	feed := map[string]int{}
	var position *string
	for round := range rounds {
		c := must.Get(client.NewContainer("db", "items"))(t)
		var wg sync.WaitGroup
		var total atomic.Int64
		kill := make(chan struct{})
		for w := range writers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				pk := azcosmos.NewPartitionKeyString(fmt.Sprint("w", w))
				for n := acked[w] + 1; ; n++ {
					batch := c.NewTransactionalBatch(pk)
					for _, id := range []string{"a", "b"} {
						batch.UpsertItem(fmt.Appendf(nil, `{"id":%q,"pk":"w%d","n":%d}`, id, w, n), nil)
					}
					r, err := c.ExecuteTransactionalBatch(ctx, batch, nil)
					if err != nil {
						return // killed
					}
					if !r.Success {
						t.Errorf("a batch was rejected: %+v", r.OperationResults)
						return
					}
					acked[w] = n
					if total.Add(1) == writesPerRound {
						close(kill)
					}
				}
			}()
		}
		<-kill
		position = readFeed(t, c, position, feed, 3) // while the writers write
		must.Do(t, cmd.Process.Kill())
		wg.Wait()
		_ = cmd.Wait() // it was killed

		cmd, url = startChild(t, dir)
		client = newClient(t, url)
		c = must.Get(client.NewContainer("db", "items"))(t)
		position = readFeed(t, c, position, feed, 1000)
		for w := range writers {
			pk := azcosmos.NewPartitionKeyString(fmt.Sprint("w", w))
			var versions [2]int
			for i, id := range []string{"a", "b"} {
				r, err := c.ReadItem(ctx, pk, id, nil)
				if err != nil {
					t.Fatalf("round %d, writer %d: %v", round, w, err)
				}
				var item struct{ N int }
				must.Do(t, json.Unmarshal(r.Value, &item))
				versions[i] = item.N
				if got := feed[fmt.Sprintf("w%d/%s", w, id)]; got != item.N {
					t.Errorf("round %d: the feed has version %d of w%d/%s, the item is at %d", round, got, w, id, item.N)
				}
			}
			if versions[0] != versions[1] {
				t.Errorf("round %d: the batch of writer %d was applied in part: %v", round, w, versions)
			}
			// One more version may have been committed without an acknowledgement.
			if versions[0] < acked[w] || versions[0] > acked[w]+1 {
				t.Errorf("round %d: writer %d is at version %d, want %d or the next", round, w, versions[0], acked[w])
			}
			acked[w] = versions[0]
		}
	}
}

// readFeed reads up to pages pages of the change feed and returns the continuation.
func readFeed(t *testing.T, c *azcosmos.ContainerClient, from *string, versions map[string]int, pages int) *string {
	t.Helper()
	for range pages {
		r := must.Get(c.ReadChangeFeed(context.Background(), &azcosmos.ChangeFeedOptions{
			FeedRange: &azcosmos.FeedRange{MinInclusive: "", MaxExclusive: "FF"}, Continuation: from, MaxItemCount: 50}))(t)
		from = &r.ContinuationToken
		if len(r.Items) == 0 {
			return from
		}
		for _, raw := range r.Items {
			var item struct {
				ID, PK string
				N      int
			}
			must.Do(t, json.Unmarshal(raw, &item))
			if id := item.PK + "/" + item.ID; versions[id] >= item.N {
				t.Errorf("%s: version %d after %d", id, item.N, versions[id])
			} else {
				versions[id] = item.N
			}
		}
	}
	return from
}
