// Package customererror translates the errors and the reports of Cluster Service into the error of an operation, which
// the customer reads.
//
// Errors of Cluster Service, Maestro and management clusters name fields of internal requests, processes and objects of
// the service, and may contain the text of any error below them. None of that is a part of the customer's error: its code
// and message are constants of this package, and its target is a property of the ARM resource. The original text is
// stored as the error's Cause, which only engineers of the service read.
package customererror

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// The codes of errors that are not ARM codes of an apierror.Kind.
const (
	CodeCanceled         = "Canceled"
	CodeDeadlineExceeded = "DeadlineExceeded"
	CodeAwaitingSecret   = "AwaitingSecret"
	// CodeIdentityNotFound is a user-assigned identity of a cluster that does not exist.
	CodeIdentityNotFound = "IdentityNotFound"
	// CodeFederatedCredentialLimit is a data plane identity without a place for the cluster's federated credentials.
	CodeFederatedCredentialLimit = "FederatedCredentialLimitExceeded"
	// CodeEncryptionKeyInvalid is a customer's key of etcd that cannot be used.
	CodeEncryptionKeyInvalid = "EncryptionKeyInvalid"
	// CodeRequirementsNotMet is a node pool whose virtual machines cannot be created in the customer's subscription.
	CodeRequirementsNotMet = "RequirementsNotMet"
	// CodeInvalidConfiguration is a configuration that the control plane rejects.
	CodeInvalidConfiguration = "InvalidConfiguration"
	CodeCertificateNotIssued = "CertificateNotIssued"
	CodeRevocationFailed     = "RevocationFailed"
	// CodeControlPlaneLost is the removal of a control plane together with its data.
	CodeControlPlaneLost = "ControlPlaneLost"
	// CodeDesiredStateRefused is a desired state that the API server of the management cluster refuses permanently. The frontend should
	// have refused it, so the fault is the service's.
	CodeDesiredStateRefused = "DesiredStateRefused"
	codeMultipleErrors      = "MultipleErrorsOccurred"
)

// internalMessage is the message for a fault of the service.
const internalMessage = "The service could not bring the resource to the requested state. The fault is in the service and not in the request."

// Canceled returns the error of an operation that ended for a reason other than its own failure.
func Canceled(message string) *database.OperationError {
	return &database.OperationError{Code: CodeCanceled, Message: message}
}

// Deleting returns the error of a change of a resource that is being deleted.
func Deleting() *database.OperationError {
	return &database.OperationError{Code: apierror.Conflict.ARMCode(), Message: "The resource is being deleted."}
}

// DeadlineExceeded returns the error of an operation that was not complete at its deadline. report may be nil.
func DeadlineExceeded(deadline time.Duration, report *clusterservice.Report) *database.OperationError {
	return &database.OperationError{Code: CodeDeadlineExceeded, Message: "The operation was not complete within " + duration(deadline) + ".",
		Layer: awaitedLayer(report)}
}

// awaitedLayer returns the first layer of a report that is not done, or empty.
func awaitedLayer(report *clusterservice.Report) string {
	var entries []hub.Progress
	switch {
	case report == nil:
	case report.Cluster != nil:
		entries = report.Cluster.Progress
	case report.NodePool != nil:
		entries = report.NodePool.Progress
	case report.ExternalAuth != nil:
		entries = report.ExternalAuth.Progress
	}
	for _, p := range entries {
		if !clusterstatus.LayerDone(&clusterservicev1.LayerProgress{Layer: p.Layer, State: p.State}) {
			return p.Layer
		}
	}
	return ""
}

// identityProperty matches the path of a property of a cluster that names a user-assigned identity.
var identityProperty = regexp.MustCompile(`properties\.platform\.operatorsAuthentication\.userAssignedIdentities\.(?:(?:controlPlane|dataPlane)Operators\[[a-z0-9-]+\]|serviceManagedIdentity)`)

// MissingIdentities returns the error of a cluster whose customer did not create the identities before the deadline, or nil
// if Cluster Service reports no missing identity.
func MissingIdentities(deadline time.Duration, report *clusterservice.Report) *database.OperationError {
	return fromIdentities(report, clusterstatus.IdentitiesRead, database.OperationError{Code: CodeIdentityNotFound,
		Message: "The identity did not exist within " + duration(deadline) + ". Create it, or create the cluster with another identity."})
}

// FullIdentities returns the error of a cluster whose data plane identities had no place for its federated credentials before
// the deadline, or nil if Cluster Service reports no full identity.
func FullIdentities(deadline time.Duration, report *clusterservice.Report) *database.OperationError {
	return fromIdentities(report, clusterstatus.IdentitiesFederated, database.OperationError{Code: CodeFederatedCredentialLimit,
		Message: fmt.Sprintf("The identity had no place for the federated credentials of the cluster within %s: Azure allows at most %d for an identity. Delete those that are not needed, or create the cluster with another identity.",
			duration(deadline), clusterstatus.MaxFederatedCredentials)})
}

// fromIdentities returns one error for each identity whose property is in the message of a condition that is False, or nil.
func fromIdentities(report *clusterservice.Report, conditionType string, failure database.OperationError) *database.OperationError {
	for _, c := range report.Conditions {
		if c.Type != conditionType || c.Status != "False" {
			continue
		}
		var failures []database.OperationError
		for _, property := range identityProperty.FindAllString(c.Message, -1) {
			one := failure
			one.Target = property
			failures = append(failures, one)
		}
		switch len(failures) {
		case 0:
			return nil
		case 1:
			return &failures[0]
		}
		return &database.OperationError{Code: codeMultipleErrors, Message: fmt.Sprintf("%d errors occurred", len(failures)), Details: failures}
	}
	return nil
}

// UnusableKey returns the error of a cluster whose customer did not provide a usable key of etcd before the deadline, or nil if
// Cluster Service reports no unusable key.
func UnusableKey(deadline time.Duration, report *clusterservice.Report) *database.OperationError {
	for _, c := range report.Conditions {
		if c.Type == clusterstatus.EncryptionKeyUsable && c.Status == "False" {
			return &database.OperationError{Code: CodeEncryptionKeyInvalid, Target: "properties.etcd.dataEncryption.customerManaged.kms.activeKey",
				Message: "The key could not be used within " + duration(deadline) +
					". Check that the vault and the version of the key exist, and that the identity of the operator kms may encrypt and decrypt with the key."}
		}
	}
	return nil
}

// UnmetRequirements returns the error of a node pool whose size or quota was not usable in the customer's subscription before the deadline, or nil
// if Cluster Service reports no such requirement. Cluster Service composes the text for customers.
func UnmetRequirements(deadline time.Duration, report *clusterservice.Report) *database.OperationError {
	for _, c := range report.Conditions {
		if c.Type != clusterstatus.RequirementsValid || c.Status != "False" {
			continue
		}
		failure := &database.OperationError{Code: CodeRequirementsNotMet,
			Message: clip("The nodes could not be created within " + duration(deadline) + ": " + clusterstatus.RefusedText(c.Message))}
		if properties := clusterstatus.RefusedProperties(c.Message); len(properties) > 0 {
			failure.Target = properties[0]
		}
		return failure
	}
	return nil
}

// secretName matches the namespace and the name of a Kubernetes Secret.
var secretName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// AwaitingSecret returns the error of an external authentication whose customer did not create the given Secrets,
// namespace/name, before the deadline.
func AwaitingSecret(deadline time.Duration, secrets []string) *database.OperationError {
	failure := &database.OperationError{Code: CodeAwaitingSecret, Target: "properties.clients",
		Message: "The secret of a confidential client was not created in the cluster within " + duration(deadline) + "."}
	var named []string
	for _, secret := range secrets {
		if secretName.MatchString(secret) {
			named = append(named, secret)
		}
	}
	if len(named) > 0 {
		failure.Message += " Missing: " + strings.Join(named, ", ") + "."
	}
	return failure
}

// duration returns a duration in whole hours, minutes or seconds.
func duration(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if d < unit.length || d%unit.length != 0 {
			continue
		}
		if d == unit.length {
			return "1 " + unit.name
		}
		return fmt.Sprintf("%d %ss", d/unit.length, unit.name)
	}
	return fmt.Sprintf("%d seconds", (d+time.Second-1)/time.Second)
}

// conditionFailures lists the conditions that explain why a resource failed, the most specific first, with the error for
// the customer.
var conditionFailures = []struct {
	condition, status string
	failure           database.OperationError
}{
	{"Valid", "False", database.OperationError{Code: CodeInvalidConfiguration, Target: "properties",
		Message: "The control plane rejected the configuration. Check that the issuer can be reached from the cluster, and check its certificate authority, the clients and the claims."}},
	{"Issued", "False", database.OperationError{Code: CodeCertificateNotIssued, Message: "The control plane did not sign the certificate. Request another credential."}},
	{"SignerClassValid", "False", database.OperationError{Code: CodeRevocationFailed, Message: "The control plane did not revoke the credentials. Repeat the request."}},
	{"Failed", "True", database.OperationError{}},
	{"Applied", "False", database.OperationError{}},
	{"Degraded", "True", database.OperationError{}},
	{"Available", "False", database.OperationError{}},
}

// ControlPlaneLost returns the error of an operation on a cluster whose control plane was removed. Its cause is the condition
// Available.
func ControlPlaneLost(report *clusterservice.Report) *database.OperationError {
	failure := &database.OperationError{Code: CodeControlPlaneLost,
		Message: "The control plane of the cluster was removed together with its data. The fault is in the service and not in the request. Contact support to decide how the cluster continues."}
	for _, c := range report.Conditions {
		if c.Type == "Available" {
			failure.Cause = clip(fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return failure
}

// The messages of CodeDesiredStateRefused, for a property that the customer can choose otherwise and without one.
const (
	refusedPropertyMessage = "The service cannot apply this value, and repeating the request does not help. Choose another value; if the property cannot be changed, delete the resource and create it again. Until then the resource keeps what was applied before. The engineers of the service are notified."
	refusedMessage         = "The service cannot apply the requested state, and repeating the request does not help. The resource keeps what was applied before. The fault is in the service and not in the request. The engineers of the service are notified."
)

// desiredStateRefused returns the error for a permanent refusal, with one target for each refused property.
func desiredStateRefused(message string) database.OperationError {
	var details []database.OperationError
	for _, property := range clusterstatus.RefusedProperties(message) {
		details = append(details, database.OperationError{Code: CodeDesiredStateRefused, Message: refusedPropertyMessage, Target: property})
	}
	switch len(details) {
	case 0:
		return database.OperationError{Code: CodeDesiredStateRefused, Message: refusedMessage}
	case 1:
		return details[0]
	}
	return database.OperationError{Code: codeMultipleErrors, Message: fmt.Sprintf("%d errors occurred", len(details)), Details: details}
}

// FromReport returns the error of a resource that Cluster Service reports as failed. Its cause is the first condition that
// explains the failure.
func FromReport(report *clusterservice.Report) *database.OperationError {
	for _, row := range conditionFailures {
		for _, condition := range report.Conditions {
			if condition.Type != row.condition || condition.Status != row.status {
				continue
			}
			failure := row.failure
			switch {
			case condition.Type == clusterstatus.Applied && condition.Reason == clusterstatus.ApplyRefused:
				failure = desiredStateRefused(condition.Message)
			case failure.Code == "":
				failure = internalFailure()
			}
			failure.Cause = clip(fmt.Sprintf("%s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
			return &failure
		}
	}
	failure := internalFailure()
	return &failure
}

func internalFailure() database.OperationError {
	return database.OperationError{Code: apierror.Internal.ARMCode(), Message: internalMessage}
}

// FromRejection returns the error of a request that Cluster Service rejected permanently, or nil if the request must be
// sent again.
func FromRejection(err error) *database.OperationError {
	e := apierror.As(err)
	switch {
	case e.Kind == apierror.Invalid:
		return fromViolations(e)
	case e.Kind == apierror.FailedPrecondition && e.Reason == clusterservice.ReasonUIDDeleted:
		return withCause(Deleting(), e)
	case e.Kind == apierror.FailedPrecondition && e.Reason == clusterservice.ReasonClusterDeleting:
		return withCause(&database.OperationError{Code: apierror.Conflict.ARMCode(), Message: "The cluster of the resource is being deleted."}, e)
	}
	// Among the other preconditions, RESOURCE_ID_IN_USE ends when the earlier incarnation is deleted, and CLUSTER_UNKNOWN
	// when the cluster has been sent.
	return nil
}

func withCause(failure *database.OperationError, cause error) *database.OperationError {
	failure.Cause = clip(cause.Error())
	return failure
}

// maxCause is the length of the longest stored cause, in bytes.
const maxCause = 2048

func clip(cause string) string {
	if len(cause) > maxCause {
		cause = strings.ToValidUTF8(cause[:maxCause], "")
	}
	return cause
}

// fromViolations returns the error for the properties that were rejected. If Cluster Service rejected only fields that
// the customer cannot set, the fault is in the service.
func fromViolations(e *apierror.Error) *database.OperationError {
	code := apierror.Invalid.ARMCode()
	var details []database.OperationError
	var causes []string
	for _, violation := range e.Violations {
		causes = append(causes, violation.Field+": "+violation.Message)
		if path, ok := clusterservice.PropertyPath(violation.Field); ok {
			details = append(details, database.OperationError{Code: code, Message: messageOf(path, violation.Message), Target: path})
		}
	}
	cause := strings.Join(causes, "; ")
	if cause == "" {
		cause = e.Error()
	}
	cause = clip(cause)
	switch len(details) {
	case 0:
		failure := internalFailure()
		failure.Cause = cause
		return &failure
	case 1:
		details[0].Cause = cause
		return &details[0]
	}
	return &database.OperationError{Code: codeMultipleErrors, Message: fmt.Sprintf("%d errors occurred", len(details)), Details: details, Cause: cause}
}

// invalidValue is the kind of a violation without a known kind.
const invalidValue = "Invalid value"

// kindMessages are the messages of violations by their kind, the text before the first colon.
var kindMessages = map[string]string{
	invalidValue:        "Invalid value: the service does not accept this value",
	"Required value":    "Required value",
	"Duplicate value":   "Duplicate value: another resource of the region has this value",
	"Unsupported value": "Unsupported value: the region does not support this value",
	"Forbidden":         "Forbidden: the field cannot be changed",
	"Too long":          "Too long: the service does not accept so many characters",
	"Too many":          "Too many: the service does not accept so many items",
}

// propertyMessages are the messages of violations at single properties, by property and kind. They take precedence over
// kindMessages.
var propertyMessages = map[[2]string]string{
	{"properties.dns.baseDomainPrefix", "Duplicate value"}: "Duplicate value: another cluster of the region has this prefix; create the cluster with another prefix",
	{"properties.version.id", "Unsupported value"}:         "Unsupported value: the region cannot install this version; list hcpOpenShiftVersions",
	{"properties.version.id", invalidValue}:                "Invalid value: the resource cannot be changed to this version",
}

func messageOf(path, message string) string {
	kind, _, _ := strings.Cut(message, ":")
	if _, ok := kindMessages[kind]; !ok {
		kind = invalidValue
	}
	if specific, ok := propertyMessages[[2]string{path, kind}]; ok {
		return specific
	}
	return kindMessages[kind]
}
