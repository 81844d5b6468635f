package azure

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"

	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

const parentZone = "example.com"

// start starts an emulator with the parent zone, and returns a connection to it.
func start(t *testing.T, delay time.Duration, assignments []arm.SeedAssignment) (*emulatortest.Azure, Connection) {
	t.Helper()
	seed := emulatortest.Seed(parentZone)
	seed.Assignments = assignments
	azure := must.Get(emulatortest.Start(emulator.Options{DataDir: t.TempDir(), Seed: seed, OperationDelay: delay}))(t)
	t.Cleanup(func() {
		if err := azure.Close(); err != nil {
			t.Error(err)
		}
	})
	return azure, Connection{Credential: azure.Tokens, Options: azure.Options(), AnyVault: true}
}

// perform runs an action with parameters and returns its log.
func perform(t *testing.T, a action.Action, with map[string]any) (string, error) {
	t.Helper()
	var log bytes.Buffer
	_, err := a.Run(t.Context(), action.Request{Step: "region/step", With: with, Log: &log})
	return log.String(), err
}

func certificateOf(azure *emulatortest.Azure, dnsName string) map[string]any {
	return map[string]any{"vault": azure.URL, "name": "ingress", "dnsName": dnsName, "issuer": "OneCertV2-PublicCA"}
}

func vaultClient(t *testing.T, azure *emulatortest.Azure) *azcertificates.Client {
	t.Helper()
	return must.Get(azcertificates.NewClient(azure.URL, azure.Tokens, &azcertificates.ClientOptions{ClientOptions: azure.Options().ClientOptions, DisableChallengeResourceVerification: true}))(t)
}

func version(t *testing.T, client *azcertificates.Client) string {
	t.Helper()
	found := must.Get(client.GetCertificate(t.Context(), "ingress", "", nil))(t)
	return found.ID.Version()
}

// TestCertificate creates a certificate whose issuance takes a while, repeats the step, and changes the name.
func TestCertificate(t *testing.T) {
	azure, connection := start(t, 300*time.Millisecond, nil)
	create, client := Certificate{connection}, vaultClient(t, azure)
	if log, err := perform(t, create, certificateOf(azure, "rp.example.com")); err != nil || !strings.Contains(log, "requested the certificate ingress") {
		t.Fatalf("%v: %s", err, log)
	}
	first := version(t, client)
	if log, err := perform(t, create, certificateOf(azure, "rp.example.com")); err != nil || strings.Contains(log, "requested") || version(t, client) != first {
		t.Errorf("a repeated step: %v: %s", err, log)
	}
	if log, err := perform(t, create, certificateOf(azure, "arm.example.com")); err != nil || !strings.Contains(log, "requested") || version(t, client) == first {
		t.Errorf("another name: %v: %s", err, log)
	}
	found := must.Get(client.GetCertificate(t.Context(), "ingress", "", nil))(t)
	if len(found.Policy.LifetimeActions) != 1 || *found.Policy.LifetimeActions[0].Action.ActionType != azcertificates.CertificatePolicyActionAutoRenew {
		t.Errorf("the vault does not renew the certificate: %+v", found.Policy.LifetimeActions)
	}
}

// TestInterruptedIssuanceIsAwaited requests the certificate as a step that was killed would have done.
func TestInterruptedIssuanceIsAwaited(t *testing.T) {
	azure, connection := start(t, 300*time.Millisecond, nil)
	client := vaultClient(t, azure)
	i := &issuance{wanted: wanted{azure.URL, "ingress", "rp.example.com", "OneCertV2-PublicCA"}, client: client, request: action.Request{Log: &bytes.Buffer{}}}
	must.Do(t, i.create(t.Context()))
	if log, err := perform(t, Certificate{connection}, certificateOf(azure, "rp.example.com")); err != nil || strings.Contains(log, "requested") {
		t.Errorf("%v: %s", err, log)
	}
}

// TestRefusedCertificate lets the issuer refuse a certificate once. The step fails with the cause, and succeeds when it runs again.
func TestRefusedCertificate(t *testing.T) {
	azure, connection := start(t, 0, nil)
	must.Get(azure.Faults().Add(faults.Rule{Services: []string{emulator.ServiceIssuer}, Path: "ingress", Status: http.StatusForbidden, Code: "QuotaExceeded", Count: 1}))(t)
	if _, err := perform(t, Certificate{connection}, certificateOf(azure, "rp.example.com")); err == nil || !strings.Contains(err.Error(), "the issuer refused the certificate ingress: ") || !strings.Contains(err.Error(), "QuotaExceeded") {
		t.Errorf("got %v", err)
	}
	if log, err := perform(t, Certificate{connection}, certificateOf(azure, "rp.example.com")); err != nil || !strings.Contains(log, "requested") {
		t.Errorf("the next run: %v: %s", err, log)
	}
}

// TestDeletedCertificateIsKept expects an error if the name is reserved, because a purge would lose the deleted certificate.
func TestDeletedCertificateIsKept(t *testing.T) {
	azure, connection := start(t, 0, nil)
	client := vaultClient(t, azure)
	must.Get(perform(t, Certificate{connection}, certificateOf(azure, "rp.example.com")))(t)
	must.Get(client.DeleteCertificate(t.Context(), "ingress", nil))(t)
	if _, err := perform(t, Certificate{connection}, certificateOf(azure, "rp.example.com")); err == nil || !strings.Contains(err.Error(), "recover or purge it") || action.ClassOf(err) != action.ClassFailed {
		t.Errorf("got %v", err)
	}
}

func delegationOf(zone string) map[string]any {
	return map[string]any{"parentSubscription": emulatortest.Subscription, "parentResourceGroup": "region", "parentZone": parentZone,
		"subscription": emulatortest.Subscription, "resourceGroup": "region", "zone": zone}
}

// TestDelegation delegates a zone, repeats the step, and repairs a record that somebody has changed.
func TestDelegation(t *testing.T) {
	azure, connection := start(t, 0, nil)
	zones := must.Get(armdns.NewZonesClient(emulatortest.Subscription, azure.Tokens, azure.Options()))(t)
	records := must.Get(armdns.NewRecordSetsClient(emulatortest.Subscription, azure.Tokens, azure.Options()))(t)
	delegate := DNSDelegation{connection}
	if _, err := perform(t, delegate, delegationOf("west.example.com")); err == nil || !strings.Contains(err.Error(), "reading the zone west.example.com: 404") {
		t.Errorf("without the zone: %v", err)
	}
	created := must.Get(zones.CreateOrUpdate(t.Context(), "region", "west.example.com", armdns.Zone{Location: to.Ptr("global")}, nil))(t)
	servers := func() []string {
		found := must.Get(records.Get(t.Context(), "region", parentZone, "west", armdns.RecordTypeNS, nil))(t)
		return nameServers(found.RecordSet)
	}
	want := strings.Join(texts(created.Properties.NameServers), " ")
	if log, err := perform(t, delegate, delegationOf("west.example.com")); err != nil || !strings.Contains(log, "delegated west.example.com to") || strings.Join(servers(), " ") != want {
		t.Fatalf("%v: %s: %v", err, log, servers())
	}
	if log, err := perform(t, delegate, delegationOf("west.example.com")); err != nil || !strings.Contains(log, "already") {
		t.Errorf("a repeated step: %v: %s", err, log)
	}
	wrong := armdns.RecordSet{Properties: &armdns.RecordSetProperties{TTL: to.Ptr[int64](60), NsRecords: []*armdns.NsRecord{{Nsdname: to.Ptr("ns.other.example.")}}}}
	must.Get(records.CreateOrUpdate(t.Context(), "region", parentZone, "west", armdns.RecordTypeNS, wrong, nil))(t)
	if _, err := perform(t, delegate, delegationOf("west.example.com")); err != nil || strings.Join(servers(), " ") != want {
		t.Errorf("after a change: %v: %v", err, servers())
	}
	if _, err := perform(t, delegate, delegationOf("west.example.org")); err == nil || !strings.Contains(err.Error(), "is not within the zone") {
		t.Errorf("a zone of another parent: %v", err)
	}
}

// TestClassesOfErrors uses a principal without any role, and a port without a server.
func TestClassesOfErrors(t *testing.T) {
	azure, connection := start(t, 0, emulatortest.Owner(entratest.ObjectID+"x"))
	if _, err := perform(t, DNSDelegation{connection}, delegationOf("west.example.com")); err == nil || !strings.Contains(err.Error(), "403 AuthorizationFailed") || action.ClassOf(err) != action.ClassFailed {
		t.Errorf("without a role: %v", err)
	}
	with := certificateOf(azure, "rp.example.com")
	with["vault"] = "https://127.0.0.1:1"
	if _, err := perform(t, Certificate{connection}, with); action.ClassOf(err) != action.Unavailable {
		t.Errorf("without a server: %v", err)
	}
}
