package customererror

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

func violation(field, message string) error {
	return apierror.InvalidFields([]apierror.Violation{{Field: field, Message: message}})
}

func TestFromRejection(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		err    error
		want   *database.OperationError
	}{
		"a duplicate domain prefix": {
			"the customer can choose another one, so the error names the property",
			violation("spec.dns.base_domain_prefix", "Duplicate value: another cluster of the region has it"),
			&database.OperationError{Code: "InvalidRequestContent", Target: "properties.dns.baseDomainPrefix",
				Message: "Duplicate value: another cluster of the region has this prefix; create the cluster with another prefix",
				Cause:   "spec.dns.base_domain_prefix: Duplicate value: another cluster of the region has it"},
		},
		"a release that the region does not have": {
			"the customer can list the versions",
			violation("spec.version.id", `Unsupported value: "4.99" in channel group "stable": supported values: 4.20`),
			&database.OperationError{Code: "InvalidRequestContent", Target: "properties.version.id",
				Message: "Unsupported value: the region cannot install this version; list hcpOpenShiftVersions",
				Cause:   `spec.version.id: Unsupported value: "4.99" in channel group "stable": supported values: 4.20`},
		},
		"several fields": {
			"every property is named",
			apierror.InvalidFields([]apierror.Violation{{Field: "spec.taints[2].key", Message: "Required value"}, {Field: "spec.tenant_id", Message: "Invalid value: x"}, {Field: "spec.platform.vm_size", Message: "exotic"}}),
			&database.OperationError{Code: "MultipleErrorsOccurred", Message: "2 errors occurred", Details: []database.OperationError{
				{Code: "InvalidRequestContent", Message: "Required value", Target: "properties.taints[2].key"},
				{Code: "InvalidRequestContent", Message: "Invalid value: the service does not accept this value", Target: "properties.platform.vmSize"},
			}, Cause: "spec.taints[2].key: Required value; spec.tenant_id: Invalid value: x; spec.platform.vm_size: exotic"},
		},
		"manifests that cannot be rendered": {
			"the customer did not set the field, so the fault is in the service",
			violation("spec", "Invalid value: rendering HostedCluster: json: unsupported type: chan int"),
			&database.OperationError{Code: "InternalServerError", Message: internalMessage, Cause: "spec: Invalid value: rendering HostedCluster: json: unsupported type: chan int"},
		},
		"a value that this release cannot translate": {
			"the backend reports ARM properties",
			violation("properties.api.visibility", `Unsupported value: "Secret": supported values: "Public"`),
			&database.OperationError{Code: "InvalidRequestContent", Target: "properties.api.visibility", Message: "Unsupported value: the region does not support this value",
				Cause: `properties.api.visibility: Unsupported value: "Secret": supported values: "Public"`},
		},
		"an invalid request without fields": {
			"no text of Cluster Service is shown",
			apierror.New(apierror.Invalid, "proto: cannot parse"),
			&database.OperationError{Code: "InternalServerError", Message: internalMessage, Cause: "proto: cannot parse"},
		},
		"the uid is deleted": {
			"a UID is never used again",
			apierror.New(apierror.FailedPrecondition, "The uid was deleted.").WithReason(clusterservice.ReasonUIDDeleted),
			&database.OperationError{Code: "Conflict", Message: "The resource is being deleted.", Cause: "The uid was deleted."},
		},
		"the cluster is being deleted": {
			"its children cannot be created",
			apierror.New(apierror.FailedPrecondition, "The cluster of the node pool is being deleted.").WithReason(clusterservice.ReasonClusterDeleting),
			&database.OperationError{Code: "Conflict", Message: "The cluster of the resource is being deleted.", Cause: "The cluster of the node pool is being deleted."},
		},
		"the last incarnation is still there": {"its deletion will end", apierror.New(apierror.FailedPrecondition, "in use").WithReason(clusterservice.ReasonResourceIDInUse), nil},
		"the cluster was not sent yet":        {"its own operation sends it", apierror.New(apierror.FailedPrecondition, "unknown").WithReason(clusterservice.ReasonClusterUnknown), nil},
		"unavailable":                         {"it will be available", apierror.New(apierror.Unavailable, "no"), nil},
		"an internal error":                   {"it may be transient", errors.New("dial tcp 127.0.0.1:5432: connect: connection refused"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, FromRejection(c.err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestFromReport(t *testing.T) {
	condition := func(kind, status, reason, message string) hub.Condition {
		return hub.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	for name, c := range map[string]struct {
		reason     string
		conditions []hub.Condition
		want       *database.OperationError
	}{
		"Maestro rejects the manifests": {
			"the customer cannot act on it",
			[]hub.Condition{condition("Placed", "True", "Placed", "Placed on provision shard mgmt-1."), condition("Applied", "False", "Refused", "refused: the bundle has 612352 bytes")},
			&database.OperationError{Code: "InternalServerError", Message: internalMessage, Cause: "Applied=False Refused: refused: the bundle has 612352 bytes"},
		},
		"a property is refused": {
			"the customer can choose another value",
			[]hub.Condition{condition("Applied", "False", "ApplyRefused", "properties.taints[2].key: NodePool x: spec.taints[2].key: Invalid value"), condition("Available", "False", "x", "x")},
			&database.OperationError{Code: "DesiredStateRefused", Message: refusedPropertyMessage, Target: "properties.taints[2].key",
				Cause: "Applied=False ApplyRefused: properties.taints[2].key: NodePool x: spec.taints[2].key: Invalid value"},
		},
		"several properties are refused": {
			"each has an error",
			[]hub.Condition{condition("Applied", "False", "ApplyRefused", "properties.replicas, properties.platform.vmSize: NodePool x: no")},
			&database.OperationError{Code: "MultipleErrorsOccurred", Message: "2 errors occurred", Details: []database.OperationError{
				{Code: "DesiredStateRefused", Message: refusedPropertyMessage, Target: "properties.replicas"},
				{Code: "DesiredStateRefused", Message: refusedPropertyMessage, Target: "properties.platform.vmSize"}},
				Cause: "Applied=False ApplyRefused: properties.replicas, properties.platform.vmSize: NodePool x: no"},
		},
		"no property is refused": {
			"only the service can act on it",
			[]hub.Condition{condition("Applied", "False", "ApplyRefused", "HostedCluster x: spec.release.image: Invalid value")},
			&database.OperationError{Code: "DesiredStateRefused", Message: refusedMessage, Cause: "Applied=False ApplyRefused: HostedCluster x: spec.release.image: Invalid value"},
		},
		"the configuration is invalid": {
			"it is the customer's, and more specific than the others",
			[]hub.Condition{condition("Degraded", "True", "InvalidConfiguration", "x"), condition("Valid", "False", "InvalidConfiguration", `Get "https://issuer": dial tcp: no such host`)},
			&database.OperationError{Code: "InvalidConfiguration", Target: "properties", Message: conditionFailures[0].failure.Message,
				Cause: `Valid=False InvalidConfiguration: Get "https://issuer": dial tcp: no such host`},
		},
		"no condition": {"the operation ends with an error in any case", nil, &database.OperationError{Code: "InternalServerError", Message: internalMessage}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, FromReport(&clusterservice.Report{Conditions: c.conditions})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Hour: "1 hour", 12 * time.Hour: "12 hours", 90 * time.Minute: "90 minutes", time.Minute: "1 minute", 90 * time.Second: "90 seconds",
		1500 * time.Millisecond: "2 seconds", 0: "0 seconds",
	} {
		if got := duration(d); got != want {
			t.Errorf("duration(%s) = %q, want %q", d, got, want)
		}
	}
}

// target matches the targets that customers may see: ARM properties with indices and keys.
var target = regexp.MustCompile(`^(id|name|location|certificateSigningRequest|(properties|identity|tags)(\.[a-zA-Z]+|\[[^\]]*\])*)$`)

// key matches indices and keys, which the customer wrote.
var key = regexp.MustCompile(`\[[^\]]*\]`)

// messages returns all messages for rejections and reports.
func messages() []string {
	all := slices.Concat(slices.Collect(maps.Values(kindMessages)), slices.Collect(maps.Values(propertyMessages)),
		[]string{internalMessage, refusedMessage, refusedPropertyMessage, Deleting().Message, "The cluster of the resource is being deleted."})
	for _, row := range conditionFailures {
		all = append(all, row.failure.Message)
	}
	return all
}

// count matches the message of several errors.
var count = regexp.MustCompile(`^[0-9]+ errors occurred$`)

// checkShown checks the error in the status document that the customer reads.
func checkShown(t *testing.T, failure *database.OperationError) {
	t.Helper()
	if failure == nil {
		return
	}
	text, err := json.Marshal(asyncoperation.NewStatus(&database.OperationDocument{Status: hub.Failed, Error: failure}).Error)
	if err != nil {
		t.Fatal(err)
	}
	var shown asyncoperation.Error
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&shown); err != nil {
		t.Fatal(err)
	}
	for _, e := range append([]asyncoperation.Error{shown}, shown.Details...) {
		if !slices.Contains(messages(), e.Message) && !(count.MatchString(e.Message) && len(e.Details) > 1) {
			t.Errorf("the customer sees the message %q", e.Message)
		}
		if e.Target != "" && !target.MatchString(e.Target) || strings.Contains(key.ReplaceAllString(e.Target, ""), "_") {
			t.Errorf("the customer sees the target %q", e.Target)
		}
	}
}

// TestMessagesContainNothingInternal checks the constants of this package.
func TestMessagesContainNothingInternal(t *testing.T) {
	for _, message := range messages() {
		for _, word := range []string{"_", "spec.", "Cluster Service", "Maestro", "management cluster", "HostedCluster", "NodePool", "ManifestWork", "HyperShift", "shard", "proto", "gRPC", "backend", "frontend", "Cosmos"} {
			if strings.Contains(message, word) {
				t.Errorf("%q contains %q", message, word)
			}
		}
	}
}

// FuzzFromRejection: whatever Cluster Service returns for a request, the customer sees only messages of this package and
// ARM properties.
func FuzzFromRejection(f *testing.F) {
	for _, seed := range [][2]string{
		{"spec.dns.base_domain_prefix", "Duplicate value: another cluster of the region has it"},
		{"spec.etcd.kms_key.vault_visibility", "Required value: supported values: PUBLIC, PRIVATE"},
		{"spec.claim_mappings.username.prefix", "Required value: when the policy is PREFIX"},
		{"spec.platform.subnet_id", `Invalid value: "x": must match (?i)^/subscriptions/`},
		{"spec.network.pod_cidr", `Invalid value: "10.0.0.0/8": must not overlap with spec.network.machine_cidr`},
		{"spec.labels[a_b]", "Invalid value: spec.labels"},
		{"properties.spec_x", "Required value: rpc error: code = Unknown desc = EOF"},
		{"tags[a_b]", "Forbidden: field is immutable"},
		{"uid", "Duplicate value: it was used for another action"},
		{"", "the bundle has 612352 bytes, and an MQTT message carries 512000"},
	} {
		f.Add(int(apierror.Invalid), seed[0], seed[1], "", false)
	}
	f.Add(int(apierror.FailedPrecondition), "", "The cluster is being deleted, or is deleted.", clusterservice.ReasonUIDDeleted, false)
	f.Add(int(apierror.FailedPrecondition), "", "x", clusterservice.ReasonClusterDeleting, true)
	f.Fuzz(func(t *testing.T, kind int, field, message, reason string, second bool) {
		e := &apierror.Error{Kind: apierror.Kind(kind), Message: message, Target: field, Reason: reason}
		if field != "" {
			e.Violations = []apierror.Violation{{Field: field, Message: message}}
		}
		if second {
			e.Violations = append(e.Violations, apierror.Violation{Field: "spec.version.id", Message: message}, apierror.Violation{Field: "spec.name", Message: field})
		}
		// Errors cross a gRPC connection.
		checkShown(t, FromRejection(e))
		if e.Kind >= apierror.Internal && e.Kind <= apierror.Unavailable {
			checkShown(t, FromRejection(apierror.FromGRPC(apierror.ToGRPC(e, "test"))))
		}
	})
}

// FuzzFromReport: whatever conditions a failed resource has, which contain texts of Maestro, management clusters and control
// planes, the customer sees only messages of this package.
func FuzzFromReport(f *testing.F) {
	f.Add("Applied", "False", "Refused", "refused: the bundle has 612352 bytes, and an MQTT message carries 512000")
	f.Add("Applied", "False", "ApplyRefused", "properties.taints[0].key, location: NodePool x: spec.taints[0].key: Invalid value")
	f.Add("Valid", "False", "InvalidConfiguration", `Get "https://issuer/.well-known/openid-configuration": x509: certificate signed by unknown authority`)
	f.Add("Issued", "False", "WrongCertificate", "x509: malformed certificate")
	f.Add("Degraded", "True", "", "ocm-0123456789abcdef/demo: deployment kube-apiserver is not available")
	f.Fuzz(func(t *testing.T, condition, status, reason, message string) {
		checkShown(t, FromReport(&clusterservice.Report{Conditions: []hub.Condition{{Type: condition, Status: status, Reason: reason, Message: message}}}))
	})
}

func TestUnusableKey(t *testing.T) {
	const property = "properties.etcd.dataEncryption.customerManaged.kms.activeKey"
	unusable := hub.Condition{Type: clusterstatus.EncryptionKeyUsable, Status: "False", Reason: clusterstatus.EncryptionKeyInvalid, Message: "https://vault/keys: 403"}
	found := UnusableKey(time.Hour, &clusterservice.Report{Conditions: []hub.Condition{{Type: "Available", Status: "False"}, unusable}})
	if found == nil || found.Code != "EncryptionKeyInvalid" || found.Target != property || strings.Contains(found.Message, unusable.Message) {
		t.Errorf("got %+v, want an error at %s without the text of HyperShift", found, property)
	}
	for _, other := range []hub.Condition{{Type: unusable.Type, Status: "True"}, {Type: clusterstatus.IdentitiesRead, Status: "False"}} {
		if found := UnusableKey(time.Hour, &clusterservice.Report{Conditions: []hub.Condition{other}}); found != nil {
			t.Errorf("with %v: got %+v", other, found)
		}
	}
}

func TestMissingIdentities(t *testing.T) {
	const root = "properties.platform.operatorsAuthentication.userAssignedIdentities."
	failure := func(property string) database.OperationError {
		return database.OperationError{Code: "IdentityNotFound", Target: root + property,
			Message: "The identity did not exist within 1 hour. Create it, or create the cluster with another identity."}
	}
	one, second := failure("controlPlaneOperators[ingress]"), failure("serviceManagedIdentity")
	for name, tc := range map[string]struct {
		reason    string
		condition hub.Condition
		want      *database.OperationError
	}{
		"one":      {"the target is its property", hub.Condition{Type: clusterstatus.IdentitiesRead, Status: "False", Message: "Missing: " + one.Target + "."}, &one},
		"several":  {"each is named", hub.Condition{Type: clusterstatus.IdentitiesRead, Status: "False", Message: one.Target + ", " + second.Target + "."}, &database.OperationError{Code: "MultipleErrorsOccurred", Message: "2 errors occurred", Details: []database.OperationError{one, second}}},
		"internal": {"no other text of Cluster Service is shown", hub.Condition{Type: clusterstatus.IdentitiesRead, Status: "False", Message: "spec.platform.subnet: panic"}, nil},
		"read":     {"the identities exist", hub.Condition{Type: clusterstatus.IdentitiesRead, Status: "True", Message: one.Target}, nil},
		"other":    {"other conditions say nothing about identities", hub.Condition{Type: "Available", Status: "False", Message: one.Target}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, MissingIdentities(time.Hour, &clusterservice.Report{Conditions: []hub.Condition{tc.condition}})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestUnmetRequirements: the error has the text and the property of the condition, if it is False.
func TestUnmetRequirements(t *testing.T) {
	unmet := hub.Condition{Type: clusterstatus.RequirementsValid, Status: "False", Reason: clusterstatus.QuotaExceeded, Message: "properties.platform.vmSize: 3 nodes need 24 cores."}
	want := &database.OperationError{Code: "RequirementsNotMet", Target: "properties.platform.vmSize", Message: "The nodes could not be created within 1 hour: 3 nodes need 24 cores."}
	found := UnmetRequirements(time.Hour, &clusterservice.Report{Conditions: []hub.Condition{{Type: "Ready", Status: "False"}, unmet}})
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if fault := FaultOf(found); fault != FaultCustomer {
		t.Errorf("the fault is of %s", fault)
	}
	unmet.Status = "Unknown"
	if found := UnmetRequirements(time.Hour, &clusterservice.Report{Conditions: []hub.Condition{unmet}}); found != nil {
		t.Errorf("an unknown requirement failed: %+v", found)
	}
}

func TestFullIdentities(t *testing.T) {
	const property = "properties.platform.operatorsAuthentication.userAssignedIdentities.dataPlaneOperators[image-registry]"
	report := &clusterservice.Report{Conditions: []hub.Condition{{Type: clusterstatus.IdentitiesFederated, Status: "False", Message: "/subscriptions/x of " + property + "."}}}
	want := &database.OperationError{Code: "FederatedCredentialLimitExceeded", Target: property,
		Message: "The identity had no place for the federated credentials of the cluster within 1 hour: Azure allows at most 20 for an identity. Delete those that are not needed, or create the cluster with another identity."}
	if diff := cmp.Diff(want, FullIdentities(time.Hour, report)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := MissingIdentities(time.Hour, report); got != nil {
		t.Errorf("an identity that exists is missing: %+v", got)
	}
}
