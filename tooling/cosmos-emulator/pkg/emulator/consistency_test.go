package emulator_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// TestStaleReads creates an item, replaces it, and reads it while a fault selects a replica that lags by one write.
func TestStaleReads(t *testing.T) {
	const latest, stale, rejected = "second", "first", ""
	for reason, tc := range map[string]struct {
		level     account.ConsistencyLevel
		requested azcosmos.ConsistencyLevel
		// token is the write whose session token the read has: 0 is none.
		token int
		want  string
	}{
		"two replicas have each write":             {account.Strong, "", 0, latest},
		"so in one region with bounded staleness":  {account.BoundedStaleness, "", 0, latest},
		"a session without a token is eventual":    {account.Session, "", 0, stale},
		"a replica without the session is skipped": {account.Session, "", 2, latest},
		"a token is a lower bound":                 {account.Session, "", 1, stale},
		"a token counts only in a session":         {account.Eventual, "", 2, stale},
		"one replica":                              {account.ConsistentPrefix, "", 0, stale},
		"a request may be weaker":                  {account.Strong, azcosmos.ConsistencyLevelSession, 0, stale},
		"and weaker with a token":                  {account.Strong, azcosmos.ConsistencyLevelSession, 2, latest},
		"a request is not stronger":                {account.Session, azcosmos.ConsistencyLevelStrong, 0, rejected},
		"of unknown levels":                        {account.Strong, "Perfect", 0, rejected},
	} {
		t.Run(reason, func(t *testing.T) {
			s, c, _ := openContainer(t, emulator.Options{EnableFaults: true, Account: account.Account{ConsistencyLevel: tc.level}})
			ctx, tokens := t.Context(), []*string{nil}
			for _, value := range []string{"first", "second"} {
				r := must.Get(c.UpsertItem(ctx, pk("p"), []byte(`{"id":"a","partitionKey":"p","value":"`+value+`"}`), nil))(t)
				tokens = append(tokens, r.SessionToken)
			}
			must.Get(s.Faults().Add(faults.Rule{Operations: []string{"read", "query"}, Container: "items", StaleRead: true}))(t)
			options := &azcosmos.ItemOptions{SessionToken: tokens[tc.token]}
			query := &azcosmos.QueryOptions{SessionToken: tokens[tc.token]}
			if tc.requested != "" {
				options.ConsistencyLevel, query.ConsistencyLevel = &tc.requested, &tc.requested
			}
			read, readErr := c.ReadItem(ctx, pk("p"), "a", options)
			page, queryErr := c.NewQueryItemsPager("SELECT * FROM c", pk("p"), query).NextPage(ctx)
			if tc.want == rejected {
				if status(readErr) != "400" || status(queryErr) != "400" {
					t.Fatalf("got %v and %v, want status 400", readErr, queryErr)
				}
				return
			}
			if readErr != nil || queryErr != nil || len(page.Items) != 1 {
				t.Fatalf("got %v and %v", readErr, queryErr)
			}
			for operation, body := range map[string][]byte{"read": read.Value, "query": page.Items[0]} {
				var got struct{ Value string }
				if err := json.Unmarshal(body, &got); err != nil || got.Value != tc.want {
					t.Errorf("%s: got %q, %v, want %q", operation, got.Value, err, tc.want)
				}
			}
		})
	}
}

// TestStaleReadOfNewItem reads an item that the lagging replica does not have, and then one of a container that no replica may lack.
func TestStaleReadOfNewItem(t *testing.T) {
	s, c, h := openContainer(t, emulator.Options{EnableFaults: true, Account: account.Account{ConsistencyLevel: account.Session}})
	must.Get(s.Faults().Add(faults.Rule{Operations: []string{"read"}, Container: "items", StaleRead: true}))(t)
	if _, err := c.ReadItem(t.Context(), pk("p"), "a", nil); status(err) != "404" || strings.Contains(err.Error(), "1003") {
		t.Errorf("a read in a new container: %v", err)
	}
	must.Get(c.CreateItem(t.Context(), pk("p"), []byte(`{"id":"a","partitionKey":"p"}`), nil))(t)
	if _, err := c.ReadItem(t.Context(), pk("p"), "a", nil); status(err) != "404" {
		t.Errorf("got %v, want 404 from the lagging replica", err)
	}
	response := must.Get(http.Get(h.URL + "/_emulator/faults"))(t)
	defer response.Body.Close()
	var rules []faults.Rule
	if err := json.NewDecoder(response.Body).Decode(&rules); err != nil || len(rules) != 1 || !rules[0].StaleRead || rules[0].Fired != 2 {
		t.Errorf("the list of rules is %+v, %v", rules, err)
	}
}

func TestUnknownConsistencyLevel(t *testing.T) {
	_, err := emulator.Open(emulator.Options{DataDir: t.TempDir(), Key: emulator.WellKnownKey, Account: account.Account{ConsistencyLevel: "Perfect"}})
	if err == nil || !strings.Contains(err.Error(), "consistencyLevel") {
		t.Errorf("got %v", err)
	}
}
