package egresslink_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/admin/pkg/egresslink"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// TestLinksAreSealedAgain rotates the key of intents. Links keep their intents with the signature of the new key. A link of an earlier release gets the intent of its
// operation. A document that nobody requested gets no signature, is counted and named, and does not prevent the others.
func TestLinksAreSealedAgain(t *testing.T) {
	db, _ := databasetest.New(t)
	path := filepath.Join(t.TempDir(), "intent.json")
	if err := intent.CreateKeys(path); err != nil {
		t.Fatal(err)
	}
	issuer, audience := intent.RegionIssuer(intenttest.TrustDomain)
	signer, err := intent.LoadSigner(path, issuer, audience)
	if err != nil {
		t.Fatal(err)
	}
	admin := &intenttest.Admin{Signer: signer, Verifier: signer.Verifier()}
	requested := time.Now().UTC().Add(-24 * time.Hour)
	link := func(id, cluster string) database.EgressLinkDocument {
		return admin.EgressLink(t, database.EgressLinkDocument{LinkID: id, ClusterUID: cluster, ResourceID: "/" + cluster, Hosts: []string{cluster + ".example"}, RequestTime: requested})
	}
	assign := func(id uint32, l database.EgressLinkDocument) {
		t.Helper()
		if _, err := db.AssignEgressLink(t.Context(), id, l, requested); err != nil {
			t.Fatal(err)
		}
	}
	sealed, earlier, forged, unsealed := link("7", "a"), link("8", "b"), link("9", "c"), link("10", "d")
	batch := db.NewBatch(database.AdminPartition)
	database.Create(batch, db.AdminOperations(), database.AdminOperationKey(earlier.OperationID), database.AdminOperationDocument{OperationID: earlier.OperationID,
		Action: adminv1.ActionEgressLinkSet, Intent: earlier.Intent, StartTime: requested})
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	assign(7, sealed)
	earlier.Intent = ""
	assign(8, earlier)
	forged.ClusterUID = "a"
	assign(9, forged)
	unsealed.Intent = ""
	assign(10, unsealed)
	next, err := keyfile.Add(path)
	if err == nil {
		err = keyfile.Promote(path, next)
	}
	if err != nil {
		t.Fatal(err)
	}
	log, metrics := &logtest.Log{}, prometheus.NewRegistry()
	sealer := egresslink.NewSealer(db, signer, slog.New(slog.NewJSONHandler(log, nil)), metrics)
	for range 2 {
		if err := sealer.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if records := strings.Count(log.String(), "was signed again"); records != 2 {
		t.Errorf("%d intents were signed again: %s", records, log)
	}
	if err := testutil.GatherAndCompare(metrics, strings.NewReader("# HELP admin_egress_links_unverified Egress links for which no signed intent of an engineer is, as of the last pass; -1 before the first. The egress gateway refuses them: assign them again.\n# TYPE admin_egress_links_unverified gauge\nadmin_egress_links_unverified 2\n")); err != nil {
		t.Error(err)
	}
	for id, verified := range map[uint32]bool{7: true, 8: true, 9: false, 10: false} {
		item, err := db.EgressLinks().Get(t.Context(), database.EgressLinkKey(id))
		if err != nil {
			t.Fatal(err)
		}
		_, err = adminaction.VerifyEgressLink(t.Context(), signer.Verifier(), &item.Value)
		if (err == nil) != verified || signer.Primary(item.Value.Intent) != verified {
			t.Errorf("link %d: %v; the primary key has signed: %t", id, err, signer.Primary(item.Value.Intent))
		}
	}
	if item, err := db.EgressLinks().Get(t.Context(), database.EgressLinkKey(9)); err != nil || item.Value.Intent != forged.Intent {
		t.Errorf("the forged link was changed: %v", err)
	}
}
