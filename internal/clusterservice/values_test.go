package clusterservice

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// violation returns the only violation of an Invalid error.
func violation(t *testing.T, err error) apierror.Violation {
	t.Helper()
	if apierror.KindOf(err) != apierror.Invalid || len(apierror.As(err).Violations) != 1 {
		t.Fatalf("got error %v, want one violation", err)
	}
	return apierror.As(err).Violations[0]
}

// TestRequestsRejectUnknownValues sets each translated field to a value without a translation.
func TestRequestsRejectUnknownValues(t *testing.T) {
	cluster := func(change func(p *hub.ClusterProperties)) error {
		d := fullCluster()
		change(&d.Cluster.Properties)
		_, err := ClusterRequest(d)
		return err
	}
	nodePool := func(change func(p *hub.NodePoolProperties)) error {
		d := &database.NodePoolDocument{}
		change(&d.NodePool.Properties)
		_, err := NodePoolRequest(d)
		return err
	}
	externalAuth := func(change func(p *hub.ExternalAuthProperties)) error {
		d := &database.ExternalAuthDocument{}
		change(&d.ExternalAuth.Properties)
		_, err := ExternalAuthRequest(d)
		return err
	}
	const etcd = "properties.etcd.dataEncryption"
	for field, tc := range map[string]struct {
		err  error
		want string
	}{
		"properties.api.visibility":             {cluster(func(p *hub.ClusterProperties) { p.API.Visibility = "New" }), `"Private", "Public"`},
		"properties.ingress.type":               {cluster(func(p *hub.ClusterProperties) { p.Ingress.Type = "New" }), `"Private", "Public"`},
		"properties.clusterImageRegistry.state": {cluster(func(p *hub.ClusterProperties) { p.ClusterImageRegistry.State = "New" }), `"Disabled", "Enabled"`},
		"properties.cryptoRestrictions":         {cluster(func(p *hub.ClusterProperties) { p.CryptoRestrictions = "New" }), `"FIPS", "None"`},
		etcd + ".keyManagementMode": {cluster(func(p *hub.ClusterProperties) { p.Etcd.DataEncryption.KeyManagementMode = "New" }),
			`"CustomerManaged", "PlatformManaged"`},
		etcd + ".customerManaged.encryptionType": {cluster(func(p *hub.ClusterProperties) { p.Etcd.DataEncryption.CustomerManaged.EncryptionType = "New" }), `"KMS"`},
		etcd + ".customerManaged.kms.visibility": {cluster(func(p *hub.ClusterProperties) { p.Etcd.DataEncryption.CustomerManaged.KMS.Visibility = "New" }),
			`"Private", "Public"`},
		"properties.platform.osDisk.diskType": {nodePool(func(p *hub.NodePoolProperties) { p.Platform.OSDisk.DiskType = "New" }), `"Ephemeral", "Managed"`},
		"properties.claim.mappings.username.prefixPolicy": {externalAuth(func(p *hub.ExternalAuthProperties) { p.Claim.Mappings.Username.PrefixPolicy = "New" }),
			`"NoPrefix", "None", "Prefix"`},
		"properties.clients[1].type": {externalAuth(func(p *hub.ExternalAuthProperties) {
			p.Clients = []hub.ExternalAuthClient{{Type: "Public"}, {Type: "New"}}
		}),
			`"Confidential", "Public"`},
		"properties.claim.validationRules[0].type": {externalAuth(func(p *hub.ExternalAuthProperties) {
			p.Claim.ValidationRules = []hub.TokenClaimValidationRule{{Type: "New", RequiredClaim: &hub.RequiredClaim{}}}
		}), `"RequiredClaim"`},
	} {
		t.Run(field, func(t *testing.T) {
			if got := violation(t, tc.err); got.Field != field || got.Message != `Unsupported value: "New": supported values: `+tc.want {
				t.Errorf("got %+v, want %s with %s", got, field, tc.want)
			}
		})
	}
}

// TestRequestsRejectMissingValues covers values without which a requirement of the customer would be dropped.
func TestRequestsRejectMissingValues(t *testing.T) {
	d := fullCluster()
	d.Cluster.Properties.Etcd.DataEncryption.CustomerManaged = nil
	_, err := ClusterRequest(d)
	if got := violation(t, err); got.Field != "properties.etcd.dataEncryption.customerManaged.kms" {
		t.Errorf("a customer-managed key without a key: got %+v", got)
	}
	auth := &database.ExternalAuthDocument{}
	auth.ExternalAuth.Properties.Claim.ValidationRules = []hub.TokenClaimValidationRule{{Type: "RequiredClaim"}}
	_, err = ExternalAuthRequest(auth)
	if got := violation(t, err); got.Field != "properties.claim.validationRules[0].requiredClaim" {
		t.Errorf("a validation rule without a claim: got %+v", got)
	}
}

// targets fails for a value of a protobuf enumeration that no key of the table translates to.
func targets[K ~string, E protoreflect.Enum](t *testing.T, table map[K]E) {
	t.Helper()
	var reached []protoreflect.EnumNumber
	var enum E
	for key, value := range table {
		if key != "" {
			reached = append(reached, value.Number())
		}
	}
	values := enum.Descriptor().Values()
	for i := range values.Len() {
		if number := values.Get(i).Number(); number != 0 && !slices.Contains(reached, number) {
			t.Errorf("no value of the hub translates to %s", values.Get(i).Name())
		}
	}
	if _, ok := table[""]; !ok {
		t.Errorf("%s has no translation for an absent field", enum.Descriptor().Name())
	}
}

func TestRequestTablesReachEveryEnumerationValue(t *testing.T) {
	targets(t, visibilities)
	targets(t, clientTypes)
	targets(t, prefixPolicies)
}

// sources fails for a value of a protobuf enumeration that the table does not translate to a name of its own.
func sources[E interface {
	protoreflect.Enum
	~int32
	String() string
}](t *testing.T, table map[E]string) {
	t.Helper()
	var enum E
	names := map[string]bool{}
	values := enum.Descriptor().Values()
	for i := range values.Len() {
		number := values.Get(i).Number()
		name, err := phase("status.phase", E(number), table)
		if err != nil || (name == "") != (number == 0) || names[name] {
			t.Errorf("%s translates to %q, %v", values.Get(i).Name(), name, err)
		}
		names[name] = true
	}
	if _, err := phase("status.phase", E(99), table); err == nil || !strings.HasPrefix(err.Error(), `status.phase: Unsupported value: "99": supported values: "`) {
		t.Errorf("%s 99: got error %v", enum.Descriptor().Name(), err)
	}
}

func TestReportTablesTranslateEveryEnumerationValue(t *testing.T) {
	sources(t, clusterPhases)
	sources(t, nodePoolPhases)
	sources(t, externalAuthPhases)
	sources(t, credentialStates)
	sources(t, revocationStates)
}

// TestReportsRejectUnknownValues: the error is not of kind Invalid, which would end the customer's operation.
func TestReportsRejectUnknownValues(t *testing.T) {
	_, cluster := ClusterReport(&clusterservicev1.Cluster{ResourceId: clusterID, Status: &clusterservicev1.ClusterStatus{Phase: 99}})
	_, nodePool := NodePoolReport(&clusterservicev1.NodePool{ResourceId: clusterID, Status: &clusterservicev1.NodePoolStatus{Phase: 99}})
	_, externalAuth := ExternalAuthReport(&clusterservicev1.ExternalAuth{ResourceId: clusterID, Status: &clusterservicev1.ExternalAuthStatus{Phase: 99}})
	_, credential := CredentialReport(&clusterservicev1.BreakGlassCredential{Uid: "u", Status: &clusterservicev1.BreakGlassCredentialStatus{State: 99}})
	_, revocation := RevocationReport(&clusterservicev1.BreakGlassRevocation{Uid: "u", Status: &clusterservicev1.BreakGlassRevocationStatus{State: 99}})
	for name, err := range map[string]error{"cluster": cluster, "node pool": nodePool, "external authentication": externalAuth, "credential": credential, "revocation": revocation} {
		if err == nil || apierror.KindOf(err) == apierror.Invalid || !strings.Contains(err.Error(), `Unsupported value: "99"`) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	if change := changeOf(&clusterservicev1.Cluster{Status: &clusterservicev1.ClusterStatus{Phase: 99}}, ClusterReport); change.Err == nil || change.Report != nil {
		t.Errorf("a change with an unknown phase is %+v", change)
	}
}
